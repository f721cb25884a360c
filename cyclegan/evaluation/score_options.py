"""Options of scoring a run."""

from __future__ import annotations

import dataclasses
import pathlib

from cyclegan.config.sections import DIRECTIONS
from cyclegan.errors import UserError


@dataclasses.dataclass(frozen=True)
class ScoreOptions:
    """Directions, features and images of the scores of a run.

    Attributes:
        directions: Directions of translation, "x2y" and "y2x".
        features: Features of FID and KID, see `features.make_extractor`.
        dataset: The run's dataset if it has moved; `None` if not.
        data_dir: Folder of prepared TensorFlow Datasets; `None` for the run's --data_dir.
        real: Folder of real images to compare with, see `real_folder`; `None` for the held-out images of the run.
        paired: Whether held-out images of the same name show the same scene.
        max_images: Number of held-out images of each domain to use, the first ones; `None` for all.
        batch_size: Images per batch.
        seed: Seed of the subsets of KID.

    Raises:
        UserError: A value cannot work.
    """

    directions: tuple[str, ...] = tuple(DIRECTIONS)
    features: str = "inception"
    dataset: str | None = None
    data_dir: str | None = None
    real: str | None = None
    paired: bool = False
    max_images: int | None = None
    batch_size: int = 4
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the values."""
        for name, least in (("max_images", 2), ("batch_size", 1), ("seed", 0)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise UserError(f"--{name} {value}: expected at least {least}")
        if self.real is None:
            return
        folder = pathlib.Path(self.real).expanduser()
        if not folder.is_dir():
            raise UserError(
                f"--real {self.real}: no such folder; expected a folder with testA and testB, or with images"
            )
        if len(self.directions) > 1 and any(self.real_folder(direction) == folder for direction in self.directions):
            raise UserError(
                f"--real {self.real}: has no testA and testB, so its images are of one domain; expected --direction x2y if this"
                " is Y, or --direction y2x if it is X"
            )

    def real_folder(self, direction: str) -> pathlib.Path:
        """Return the folder of the real images of a direction's target domain.

        It is the subfolder testA or testB of `real` if that exists, else `real` itself.
        """
        folder = pathlib.Path(self.real or "").expanduser()
        subfolder = folder / {"X": "testA", "Y": "testB"}[DIRECTIONS[direction][1]]
        return subfolder if subfolder.is_dir() else folder
