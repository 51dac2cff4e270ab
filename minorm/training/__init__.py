"""Training: the loop itself (steps/loop.py), and a whole run on disk that can stop and go on (run.py)."""

from minorm.diagnosis.finite import NonFiniteLoss
from minorm.training.data.defaults import choose_settings
from minorm.training.files.log_file import read_log
from minorm.training.model.model_building import UntrustedCode
from minorm.training.run import Run
from minorm.training.settings import Settings
from minorm.training.steps.loop import evaluate, predict, train_epoch
from minorm.training.steps.score import Score
from minorm.training.steps.tta import TTA
from minorm.training.watch import BatchNormWatch

__all__ = [
    "TTA",
    "BatchNormWatch",
    "NonFiniteLoss",
    "Run",
    "Score",
    "Settings",
    "UntrustedCode",
    "choose_settings",
    "evaluate",
    "predict",
    "read_log",
    "train_epoch",
]
