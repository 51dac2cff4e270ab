"""RNN, LSTM and GRU: layers for sequences, and cells for one step."""
