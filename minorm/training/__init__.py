"""Train models with a plain loop (steps/loop.py), or as a run in a folder, which can be continued later (run.py)."""

from minorm.diagnosis.finite import NonFiniteLoss
from minorm.training.callbacks import Callback, CallbackError, CallbackState
from minorm.training.data.defaults import choose_settings
from minorm.training.files.log_file import read_log
from minorm.training.metrics.class_scores import (
    calibration_curve,
    expected_calibration_error,
    precision_recall_fscore_support,
    roc_auc_score,
    top_k_accuracy_score,
)
from minorm.training.metrics.classification_report import ClassificationReport, classification_report
from minorm.training.model.model_building import UntrustedCode
from minorm.training.run import Run
from minorm.training.settings import Settings
from minorm.training.steps.loop import evaluate, predict, train_epoch
from minorm.training.steps.score import Score
from minorm.training.steps.tta import TTA
from minorm.training.trackers import MLflowCallback, TensorBoardCallback, WandbCallback
from minorm.training.watch import BatchNormWatch

__all__ = [
    "TTA",
    "BatchNormWatch",
    "Callback",
    "CallbackError",
    "CallbackState",
    "ClassificationReport",
    "MLflowCallback",
    "NonFiniteLoss",
    "Run",
    "Score",
    "Settings",
    "TensorBoardCallback",
    "UntrustedCode",
    "WandbCallback",
    "calibration_curve",
    "choose_settings",
    "classification_report",
    "evaluate",
    "expected_calibration_error",
    "precision_recall_fscore_support",
    "predict",
    "read_log",
    "roc_auc_score",
    "top_k_accuracy_score",
    "train_epoch",
]
