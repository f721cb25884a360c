import pytest

from tests.config.helpers import refusal_of


@pytest.mark.parametrize(
    "flags, text",
    [
        ("--batch_size 0", "--batch_size 0: expected at least 1 image pair per replica"),
        ("--epochs 0", "--epochs 0: expected at least 1"),
        ("--lr 0", "--lr 0.0: expected a finite number above 0"),
        ("--lr nan", "--lr nan: expected a finite number above 0"),
        ("--lr 1e400", "--lr inf: expected a finite number above 0"),
        ("--epsilon 0", "--epsilon 0.0: expected a finite number above 0"),
        ("--epsilon nan", "--epsilon nan: expected a finite number above 0"),
        ("--seed 4294967296", "--seed 4294967296: expected at most 4294967295"),
        ("--beta_1 1", "--beta_1 1.0: expected at least 0 and less than 1"),
        ("--seed -1", "--seed -1: expected at least 0"),
        ("--max_bad_steps 0", "--max_bad_steps 0: expected at least 1"),
        ("--ema 1", "--ema 1.0: expected at least 0 and less than 1"),
        ("--ema -0.1", "--ema -0.1: expected at least 0 and less than 1"),
        ("--clip_norm nan", "--clip_norm nan: expected a finite number of at least 0"),
        ("--weight_decay inf", "--weight_decay inf: expected a finite number of at least 0"),
        ("--lr_discriminator 0", "--lr_discriminator 0.0: expected a finite number above 0"),
        ("--discriminator_steps 0", "--discriminator_steps 0: expected at least 1"),
    ],
)
def test_impossible_values_are_refused(flags, text):
    assert text in refusal_of(flags)
