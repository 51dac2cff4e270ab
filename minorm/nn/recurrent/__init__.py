"""RNN, LSTM and GRU: over a sequence, and cells of one step."""
