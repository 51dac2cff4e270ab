"""Search for settings with Optuna: each trial is a run, and a callback ends those that fall behind.

Needs: pip install optuna scikit-learn.
"""

import optuna

from minorm.training import Callback, Run, Settings

TRIALS, EPOCHS = 10, 5


class Pruning(Callback):
    """Reports each epoch's accuracy to the trial, and stops the run where Optuna gives the trial up."""

    def __init__(self, trial):
        self.trial = trial

    def on_train_epoch_end(self, state):
        self.trial.report(state.row["val_accuracy"], step=state.epoch)
        state.run.should_stop = self.trial.should_prune()


def objective(trial):
    """The accuracy of a run with the settings that the trial suggests."""
    settings = Settings(
        data="digits",
        epochs=EPOCHS,
        optimizer=trial.suggest_categorical("optimizer", ["sgd", "adam"]),
        lr=trial.suggest_float("lr", 1e-4, 1.0, log=True),
        weight_decay=trial.suggest_float("weight_decay", 1e-6, 1e-2, log=True),
    )
    run = Run(settings)
    run.fit(callbacks=[Pruning(trial)])
    if not run.finished:
        raise optuna.TrialPruned
    return run.history[-1]["val_accuracy"]


optuna.logging.set_verbosity(optuna.logging.WARNING)
study = optuna.create_study(
    direction="maximize",
    sampler=optuna.samplers.TPESampler(seed=0),
    pruner=optuna.pruners.MedianPruner(n_startup_trials=3, n_warmup_steps=1),
)
study.optimize(objective, n_trials=TRIALS)

for trial in study.trials:
    lr, optimizer = trial.params["lr"], trial.params["optimizer"]
    done = len(trial.intermediate_values)
    print(
        f"trial {trial.number}: {optimizer:4} lr {lr:.1e}  {trial.state.name.lower()} after {done} of {EPOCHS} epochs"
    )
stopped = sum(trial.state is optuna.trial.TrialState.PRUNED for trial in study.trials)
print(f"{stopped} of {len(study.trials)} trials were stopped early")
print(f"best: {study.best_params}, accuracy in validation {study.best_value:.3f}")
