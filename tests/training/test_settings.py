"""Settings: usual values where nothing is said, errors that name what was wrong."""

from __future__ import annotations

from typing import Any

import pytest

from minorm.training.settings import MODEL_FOR, Settings


def test_what_is_not_said_is_the_usual() -> None:
    assert [Settings(data=name).model for name in MODEL_FOR] == list(MODEL_FOR.values())
    assert [Settings(optimizer=name).lr for name in ("sgd", "adam", "adamw")] == [0.05, 0.003, 0.003]
    assert Settings(lr=0.5, model="resnet20").model == "resnet20"
    assert [(Settings(data=name).hflip, Settings(data=name).crop_padding) for name in ("cifar10", "folder")] == [
        (0.5, 4),
        (0, 0),
    ]
    assert Settings(data="cifar10", hflip=0, crop_padding=0).hflip == 0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"data": "imagenet"}, "data is 'imagenet'; expected one of digits, mnist, fashion, cifar10"),
        ({"model": "vgg"}, "model is 'vgg'; expected one of digits, lenet"),
        ({"optimizer": "lamb"}, "optimizer is 'lamb'; expected one of sgd, adam, adamw"),
        ({"schedule": "none"}, "schedule is 'none'; expected one of constant"),
        ({"epochs": 0}, "epochs is 0; expected at least 1"),
        ({"batch_size": 0}, "batch_size is 0; expected at least 1"),
        ({"lr": -1.0}, "lr is -1.0; expected a positive number"),
        ({"lr": float("nan")}, "lr is nan; expected a positive number"),
        ({"weight_decay": -1.0}, "weight_decay is -1.0; expected 0 or a positive number"),
        ({"label_smoothing": 2.0}, "label_smoothing is 2.0; expected a number from 0 to 1"),
        ({"seed": -1}, "seed is -1; expected 0 or more"),
        ({"model": "build.py"}, "model is 'build.py'; expected one of .*, FILE.py:FUNCTION or FILE.onnx"),
        ({"image_size": 0}, "image_size is 0; expected at least 1"),
        ({"hflip": 1.5}, "hflip is 1.5; expected a number from 0 to 1"),
        ({"color_jitter": float("inf")}, "color_jitter is inf; expected 0 or a positive number"),
        ({"ema": 1.0}, "ema is 1.0; expected 0, or a decay below 1"),
        ({"mixup": 0.2, "cutmix": 1.0}, "cutmix is 1.0; expected 0, because mixup is on"),
        ({"warmup_epochs": 8}, "warmup_epochs is 8; expected fewer than 8"),
        ({"class_weights": "some"}, "class_weights is 'some'; expected one of none, balanced"),
        ({"epochs": "3"}, "epochs is '3'; expected a whole number"),
        ({"epochs": True}, "epochs is True; expected a whole number"),
        ({"batch_size": 32.0}, "batch_size is 32.0; expected a whole number"),
        ({"epochs": 10**400}, "epochs is 10+; expected less than 2\\^63"),
        ({"lr": 10**400}, "lr is 10+; expected less than 2\\^63"),
        ({"lr": "high"}, "lr is 'high'; expected a number"),
        ({"data": None}, "data is None; expected a text"),
        ({"image_size": 8193}, "image_size is 8193; expected at most 8192"),
        ({"crop_scale": 0.0}, "crop_scale is 0.0; expected a number above 0 and at most 1"),
        ({"crop_scale": 1.5}, "crop_scale is 1.5; expected a number above 0 and at most 1"),
        ({"loss": "hinge"}, "loss is 'hinge'; expected one of cross_entropy, focal"),
        ({"vflip": 1.5}, "vflip is 1.5; expected a number from 0 to 1"),
        ({"rotate": 181.0}, "rotate is 181.0; expected degrees from 0 to 180"),
        ({"perspective": -0.1}, "perspective is -0.1; expected a number from 0 to 1"),
        ({"blur": float("nan")}, "blur is nan; expected 0 or a positive number"),
        ({"rand_augment": "2"}, "rand_augment is '2'; expected \"N,M\", N changes of a strength M from 0 to 30"),
        ({"rand_augment": "2,31"}, "rand_augment is '2,31'; expected"),
        *(
            ({"fold": text}, f"fold is '{text}'; expected \"I/K\", the I-th of K folds")
            for text in ("0/5", "6/5", "1/1", "1", "")
        ),
        ({"trivial_augment": 1}, "trivial_augment is 1; expected True or False"),
        ({"dtype": "float16"}, "dtype is 'float16'; expected one of float32, bfloat16"),
    ],
)
def test_wrong_settings(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Settings(**wrong)
