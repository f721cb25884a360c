"""Images of TensorFlow Datasets, and the errors of datasets that cannot be read."""

import pathlib
import socket
import subprocess
import sys
import time

import numpy as np
import pytest
import requests
import tensorflow_datasets as tfds

from cyclegan.config import Config
from cyclegan.data import sources, tfds_source
from cyclegan.errors import UserError
from cyclegan.images import reader
from tests.data.image_folders import image_sets, load_config, stack

ROOT = pathlib.Path(__file__).resolve().parents[2]


def load(dataset, image_size=16, load_size=16, **flags):
    return load_config(Config.from_settings(dataset=dataset, image_size=image_size, load_size=load_size, **flags))


def test_a_missing_network_is_an_error_within_ten_seconds(tmp_path, monkeypatch):
    def no_network(*args, **kwargs):
        raise requests.exceptions.ConnectionError("no network")

    monkeypatch.setattr(requests, "head", no_network)
    tfds_source.cycle_gan_names()  # imports TFDS's modules before the time counts
    start = time.perf_counter()
    with pytest.raises(UserError) as error:
        load("cycle_gan/horse2zebra", data_dir=str(tmp_path))
    assert time.perf_counter() - start < 10
    for part in (str(tmp_path), "efrosgans.eecs.berkeley.edu", "--data_dir", "--dataset FOLDER", "--dataset stripes"):
        assert part in str(error.value)
    assert not list(tmp_path.iterdir())


def test_a_silent_host_is_given_up(monkeypatch):
    monkeypatch.setattr(tfds_source, "ANSWER_SECONDS", 1)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        start = time.perf_counter()
        assert not tfds_source._host_answers(f"http://127.0.0.1:{silent.getsockname()[1]}/a.zip")
    assert time.perf_counter() - start < 5


class Levels(tfds.core.GeneratorBasedBuilder):
    """Gray levels in the splits and with the features of `cycle_gan`."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        image = tfds.features.Image(shape=(16, 16, 3), encoding_format="png")
        features = tfds.features.FeaturesDict({"image": image})
        return tfds.core.DatasetInfo(builder=self, disable_shuffling=True, features=features)

    def _split_generators(self, dl_manager):
        return {split: self._generate_examples(number) for number, split in enumerate(sources.SPLITS)}

    def _generate_examples(self, number):
        for i in range(20):
            yield i, {"image": np.full((16, 16, 3), 50 * number + i, np.uint8)}


def prepared(folder, files=1):
    """Prepare the gray levels with several files per split; return the builder."""
    builder = Levels(data_dir=str(folder))
    builder.download_and_prepare(download_config=tfds.download.DownloadConfig(num_shards=files))
    return builder


def test_a_prepared_dataset_is_loaded(tmp_path, monkeypatch):
    builder = prepared(tmp_path)
    monkeypatch.setattr(tfds_source, "cycle_gan_builder", lambda dataset, folder: builder)
    domains = load("cycle_gan/horse2zebra")
    assert domains.test_y.names[3] == "levels/1.0.0/testB[3]"
    for number, part in enumerate(image_sets(domains)):
        assert stack(part)[:, 0, 0, 0].tolist() == [50 * number + i for i in range(20)]


def test_several_files_are_read_in_their_order(tmp_path):
    builder = prepared(tmp_path, 3)
    assert len(builder.info.splits["trainA"].filepaths) == 3
    files, names = tfds_source.read(builder, sources.SPLITS, max_images=12)
    assert names["trainB"] == [f"levels/1.0.0/trainB[{i}]" for i in range(12)]
    assert [reader.decode(file)[0, 0, 0] for file in files["trainB"]] == [50 + i for i in range(12)]


FIRST_START = """
import pathlib, sys, time
import tensorflow_datasets as tfds
from cyclegan.data import tfds_source
from tests.data import test_tfds_source
builder = test_tfds_source.Levels(data_dir=sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
print(sum(map(len, tfds_source.read(builder, ["trainA"])[0].values())))
"""


@pytest.mark.slow
def test_several_first_starts_prepare_once(tmp_path):
    left = tmp_path / "levels" / "incomplete.ABCDEF_1.0.0"  # of a process that was killed
    left.mkdir(parents=True)
    command = [sys.executable, "-c", FIRST_START, str(tmp_path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    started = [subprocess.Popen(command, cwd=ROOT, **pipes) for _ in range(3)]
    assert [process.stdout.readline() for process in started] == ["ready\n"] * 3
    ends = []
    for process in started:
        process.stdin.write("\n")
        process.stdin.flush()
    for process in started:
        out, errors = process.communicate(timeout=300)
        ends.append((process.returncode, out, errors[-500:] if process.returncode else ""))
    assert ends == [(0, "20\n", "")] * 3 and not left.exists()


def test_the_environment_names_the_folder_for_every_part(tmp_path, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "of the user"))
    built = []
    monkeypatch.setattr(tfds, "builder", lambda name, data_dir: built.append(data_dir) or prepared(tmp_path))
    monkeypatch.setattr(Levels, "url_infos", {})
    load("cycle_gan/horse2zebra")
    (tmp_path / "of the user" / "cycle_gan" / "horse2zebra" / "3.0.0").mkdir(parents=True)
    (tmp_path / "of the user" / "cycle_gan" / "horse2zebra" / "3.0.0" / "dataset_info.json").touch()
    data = Config.from_settings(image_size=16, load_size=16).data
    assert sources.comparison_images(data, "x2y", 4)[1].startswith("2 images (cycle_gan/horse2zebra, testA)")
    assert built == [str(tmp_path / "of the user")] * 2
    load("cycle_gan/horse2zebra", data_dir=str(tmp_path / "given"))
    assert built[-1] == str(tmp_path / "given")


@pytest.mark.parametrize("folder", ["gs://bucket/data", "~nobody there/data", "a" * 5000])
def test_a_folder_in_the_environment_that_cannot_be_is_named(monkeypatch, folder):
    monkeypatch.setenv("TFDS_DATA_DIR", folder)
    with pytest.raises(UserError, match=f"^TFDS_DATA_DIR {folder[:80]}.*; expected"):
        sources.check_dataset(Config.from_settings().data)
    assert sources.comparison_images(Config.from_settings(image_size=16, load_size=16).data, "x2y", 4)[1][:1] == "2"


def change_a_byte(paths):
    content = bytearray(paths[1].read_bytes())
    content[len(content) // 2] ^= 1
    paths[1].write_bytes(content)


@pytest.mark.parametrize(
    "damage",
    [change_a_byte, lambda paths: paths[1].unlink(), lambda paths: paths[1].write_bytes(paths[0].read_bytes())],
)
def test_damage_is_named(tmp_path, damage):
    builder = prepared(tmp_path, 3)
    damage(builder.info.splits["testA"].filepaths)
    with pytest.raises(UserError, match="levels.*: testA is damaged .*: otherwise, remove that folder and start again"):
        tfds_source.read(builder, ["testA"])


def test_a_missing_archive_is_one_error(tmp_path, monkeypatch):
    module = __import__(tfds.builder_cls("cycle_gan").__module__, fromlist=["_DL_URLS"])
    monkeypatch.setitem(module._DL_URLS, "horse2zebra", str(tmp_path / "missing.zip"))
    monkeypatch.setattr(tfds_source, "_host_answers", lambda url: True)
    with pytest.raises(UserError, match="TensorFlow Datasets could not prepare cycle_gan/horse2zebra/3.0.0 in "):
        load("cycle_gan/horse2zebra", data_dir=str(tmp_path / "tfds"))
