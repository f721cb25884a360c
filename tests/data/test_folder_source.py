"""Image files of folders, their splits, held-out images and pairs of equal names."""

import os
import re
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import tifffile

from cyclegan.cli import check_run
from cyclegan.data import folder_source
from cyclegan.data.unpaired import UnpairedDataset
from cyclegan.errors import UserError
from cyclegan.evaluation.options import ScoreOptions
from cyclegan.images import reader
from cyclegan.inference.translate_files import add_masks, plan_tasks
from tests.data.image_folders import load, photograph, save, stack
from tests.inspection.datasets import inspect


def test_subfolders_are_searched_and_hidden_files_left_out(tmp_path):
    for name in ("b/c.png", "b/d/e.JPG", "a.png", ".hidden.png", ".git/f.png", "__MACOSX/g.png", "b/._c.png"):
        save(tmp_path / name)
    (tmp_path / "notes.txt").write_text("no image")
    (tmp_path / "Thumbs.db").write_bytes(b"")
    (tmp_path / "folder.png").mkdir()
    os.mkfifo(tmp_path / "pipe.png")  # reading it would block
    assert folder_source.find_images(tmp_path) == ["a.png", "b/c.png", "b/d/e.JPG"]


def test_dicom_files_of_all_endings_and_without_one_are_found(tmp_path):
    content = bytes(128) + b"DICM"
    for name in ("a.ima", "b.IMA", "c.dcm", "IM000001", "1.2.840.17", "1.2.840.18", "DICOMDIR", ".hidden", "scan.old"):
        (tmp_path / name).write_bytes(content)
    (tmp_path / "README").write_text("no image")
    os.mkfifo(tmp_path / "pipe")
    assert folder_source.find_images(tmp_path) == ["1.2.840.17", "1.2.840.18", "IM000001", "a.ima", "b.IMA", "c.dcm"]
    assert [folder_source.stem(f"a.b/{name}") for name in ("c.png", "1.2.17", "IM1")] == [
        "a.b/c",
        "a.b/1.2.17",
        "a.b/IM1",
    ]


def test_files_that_are_not_used_are_named(folder):
    for name in ("a.PSD", "b.psd", "c.xcf", "notes", ".hidden"):
        (folder / "trainB" / name).write_text("no image")
    assert (
        "Files of trainB that are not used: 4 (.psd, .xcf, notes); if they are images, convert them to PNG or JPEG"
        in load(folder).notes
    )
    for name in ("a.MPG", "b.ts"):
        (folder / "trainA" / name).touch()
    assert "Files of trainA that are not used: 2 (.mpg, .ts); convert the films to MP4" in load(folder).notes


def test_links_to_nothing_are_named(folder, tmp_path):
    (folder / "trainB" / "gone.png").symlink_to(tmp_path / "moved.png")
    (folder / "trainB" / "a.psd").touch()
    gone = f"{folder}/trainB/gone.png, a link to {tmp_path}/moved.png, which does not exist; if"
    assert any(f"not used: 2 (links to nothing, .psd); for example {gone}" in note for note in load(folder).notes)
    for path in (folder / "trainB").glob("*.*g"):
        path.is_symlink() or path.unlink()
    with pytest.raises(UserError, match="trainB: no images; .* not used: 2 .links to nothing, .psd."):
        load(folder)
    (folder / "trainA").rename(tmp_path / "A")
    (folder / "trainA").symlink_to("../B")
    with pytest.raises(UserError, match="trainA: a link to ../B, which does not exist; expected images of one domain"):
        load(folder)


def test_what_is_there_instead_of_a_folder_is_described(tmp_path):
    (tmp_path / "to nothing").symlink_to("nowhere")
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    (tmp_path / "Photos").mkdir()
    for path, text in (
        ("to nothing", "a link to nowhere, which does not exist"),
        ("to nothing/sub", f"{tmp_path}/to nothing: a link to nowhere, which does not exist"),
        ("a", "a link to b, and leads back to itself"),
        ("photos", "no such folder, but Photos is there"),
        ("photos/sub", f"{tmp_path}/photos: no such folder, but Photos is there"),
        ("Photos/sub", f"no such folder, because {tmp_path}/Photos is empty (is it mounted?)"),
        ("other", "no such folder"),
    ):
        for read in (load, inspect):
            with pytest.raises(UserError, match=re.escape(f"{path}: {text}; expected a folder with trainA")):
                read(tmp_path / path)
    a = str(tmp_path / "a")
    for command in (
        lambda: check_run(a),
        lambda: ScoreOptions(real=a),
        lambda: plan_tasks([a], str(tmp_path), None),
        lambda: add_masks([], a),
    ):
        with pytest.raises(UserError, match="a link to b, and leads back to itself"):
            command()


def test_a_link_of_masks_to_nothing_is_refused(folder):
    (folder / "maskA").symlink_to("masks")
    with pytest.raises(UserError, match="maskA: a link to masks, which does not exist; expected a folder of masks"):
        load(folder)


def test_loops_of_links_are_visited_once(tmp_path):
    data = tmp_path / "data"
    save(data / "a.png")
    save(data / "sub" / "b.png")
    os.symlink(data, data / "sub" / "up")
    os.symlink(data / "sub", data / "sub" / "self")
    os.symlink("loop.png", data / "loop.png")  # a link to itself
    os.symlink("loop", data / "loop")
    os.symlink(tmp_path / "nowhere.png", data / "dangling.png")
    os.symlink(tmp_path / "nowhere", data / "dangling")
    assert folder_source.find_images(data) == ["a.png", "sub/b.png"]
    os.symlink(data / "sub", data / "beside")  # either name may be used
    found = [os.path.realpath(data / name) for name in folder_source.find_images(data)]
    assert sorted(found) == sorted(os.path.realpath(data / name) for name in ("a.png", "sub/b.png"))


def test_without_test_folders_some_images_are_held_out(folder):
    domains = load(folder)
    assert domains.train_x.shape == (16, 24, 24, 3) and domains.test_x.shape == (4, 16, 16, 3)
    assert (len(domains.train_y), len(domains.test_y)) == (2, 1)
    name = domains.test_x.names[0]
    assert domains.test_x[0][0, 0].tolist() == [int(name[-6:-4]), 0, 0] and name not in domains.train_x.names
    assert f"No testA in {folder}: 4 of 20 images of trainA are held out for validation" in domains.notes
    assert len(domains.notes) == 3 and domains.notes[-1].startswith("Few training images, 16 in trainA and ")


def test_test_folders_are_used(folder):
    save(folder / "testA" / "x.png", (77, 0, 0))
    domains = load(folder)
    assert len(domains.train_x) == 20 and domains.test_x[0][0, 0].tolist() == [77, 0, 0]
    assert len(domains.notes) == 2 and "testB" in domains.notes[0]


@pytest.mark.parametrize("count, expected", [(2, 1), (9, 1), (30, 6), (60, 8), (160, 16), (201, 20), (401, 21)])
def test_images_are_held_out_but_no_series(count, expected):
    """Images of one place often have neighboring names."""
    names = [f"trainA/place{i // 10:02d}/{i:04d}.png" for i in range(count)]
    kept, held_out, _ = folder_source.hold_out(names, "trainA")
    assert len(held_out) == expected and sorted(kept + held_out) == names
    assert kept == sorted(kept) and held_out == sorted(held_out)
    if count > 100:
        assert len({name[:14] for name in held_out}) > 4
    others = [name.replace("trainA", "trainB").replace(".png", ".jpg") for name in names]
    _, beside, _ = folder_source.hold_out(others, "trainB")
    assert [folder_source.stem(name[7:]) for name in beside] == [folder_source.stem(name[7:]) for name in held_out]
    larger = {*folder_source.hold_out([*names, "trainA/new.png"], "trainA")[1]}
    assert len(larger - {*held_out}) <= 1  # after a new image, most are the same


def test_a_single_image_is_used_for_both(tmp_path):
    """Train on crops of one large image for each domain."""
    for domain in "AB":
        photograph(tmp_path / f"train{domain}" / "a.png", ord(domain), 90)
    domains = load(tmp_path, preprocess="crop", epoch_size="7")
    assert domains.train_x.names == domains.test_x.names == ["trainA/a.png"]
    assert f"No testB in {tmp_path}: the only image of trainB is used for training and for validation" in domains.notes
    dataset = UnpairedDataset(domains.train_x, domains.train_y, 1, domains.size, seed=0, epoch_size="7")
    assert dataset.steps_per_epoch == 7 and len({dataset.image("X", 0, i).tobytes() for i in range(7)}) == 7
    assert not [each.kind.title for each in inspect(tmp_path).findings if "training and test" in each.kind.title]


def test_missing_and_empty_folders_are_named(folder, tmp_path):
    with pytest.raises(
        UserError,
        match="--dataset nowhere: no such folder; expected .*trainA.* stripes, scenes, or cycle_gan/NAME.*horse2zebra",
    ):
        load("nowhere")
    with pytest.raises(UserError, match=r"no such folder \(do you mean cycle_gan/horse2zebra\?\); expected"):
        load("horse2zebra")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").touch()
    with pytest.raises(UserError, match="/run: a run, not a folder of images; --output_dir .*/run resumes it"):
        load(tmp_path / "run")
    with pytest.raises(UserError, match="0.jpg: a file; expected a folder with trainA and trainB"):
        load(folder / "trainB" / "0.jpg")
    with pytest.raises(UserError, match="trainA: no such folder; expected images of one domain in trainA"):
        load(tmp_path)
    with pytest.raises(UserError, match=f"of the other in trainB: try {folder}$"):
        load(folder / "trainB")
    (folder / "testB").mkdir()
    with pytest.raises(UserError, match=r"testB: no images; expected at least one of .png [^()]*, or no such folder$"):
        load(folder)
    (folder / "testB" / "a.psd").touch()
    with pytest.raises(UserError, match=r"testB: no images; .* 1 \(.psd\); if they are images, convert them to PNG or"):
        load(folder)
    shutil.rmtree(folder / "testB")
    (folder / "MaskA").mkdir()
    with pytest.raises(UserError, match=": rename MaskA to maskA; expected these names$"):
        load(folder)
    (folder / "MaskA").rmdir()
    (folder / "trainA").rename(folder / "TrainA")
    with pytest.raises(
        UserError, match="trainA: no such folder, but TrainA is there; .*trainB: rename TrainA to trainA$"
    ):
        load(folder)
    (folder / "trainB").rename(folder / "trainb")
    with pytest.raises(UserError, match="but TrainA is there; .*trainB: rename TrainA to trainA, trainb to trainB$"):
        load(folder)
    with pytest.raises(UserError, match="cycle_gan/horse: expected cycle_gan/NAME with NAME one of apple2orange"):
        load("cycle_gan/horse")


X = ["trainA/a/1.png", "trainA/a/2.png", "trainA/b/1.png", "trainA/c.v2.tif"]
Y = ["trainB/a/2.jpg", "trainB/b/1.JPG", "trainB/c.png", "trainB/c.v2.png", "trainB/trainA/a/1.png"]


def find(x, y, x_size=(4, 5), y_size=(4, 5)):
    parts = ((x, x_size), (y, y_size))
    files = [SimpleNamespace(names=names, sizes=np.tile(size, (len(names), 1))) for names, size in parts]
    return folder_source.find_pairs(*files).tolist()


def test_equal_paths_but_for_the_extension_are_pairs():
    assert find(X, Y) == find([*X, "trainA/z.png", "trainA/z.jpg"], Y) == [[1, 0], [2, 1], [3, 3]]


@pytest.mark.parametrize(
    "x, y, text",
    [
        (
            X[:1],
            Y,
            "no image of trainA has the name of an image of trainB, for example trainA/a/1.png and trainB/a/2.jpg",
        ),
        (
            [*X, "trainA/b/1.jpg"],
            Y,
            "trainA/b/1.png and trainA/b/1.jpg have the same name; expected at most one image of each name",
        ),
        (X, [*Y, "trainB/b/1.gif"], "trainB/b/1.JPG and trainB/b/1.gif have the same name"),
    ],
)
def test_names_that_give_no_pairs_are_refused(x, y, text):
    with pytest.raises(UserError, match=re.escape(f"--paired_names: {text}")):
        find(x, y)


def test_pairs_of_different_sizes_are_refused():
    with pytest.raises(
        UserError, match=r"trainA/a/2.png \(5 x 4 pixels\) and trainB/a/2.jpg \(6 x 4 pixels\) differ in size"
    ):
        find(X, Y, y_size=(4, 6))


def save_stack(path, levels):
    """Write a TIFF file with a page of each level."""
    path.parent.mkdir(parents=True, exist_ok=True)
    tifffile.imwrite(path, np.stack([np.full((16, 20), level, np.uint8) for level in levels]), photometric="minisblack")


def test_stacks_give_an_image_for_each_page(tmp_path):
    data = tmp_path / "data"
    for domain in "AB":
        for number in range(3):
            save_stack(data / f"train{domain}" / f"{number}.tif", range(10 * number, 10 * number + 4))
    save(data / "trainA" / "flat.png", (99, 99, 99), (20, 16))
    domains = load(data, stacks="all", channels_x=1, paired_names=True)
    names = [f"trainA/{file}.tif[{number}]" for file in (1, 2) for number in range(4)]
    assert domains.train_x.names == [*names, "trainA/flat.png"]
    assert [image[0, 0, 0] for image in stack(domains.train_x)] == [10, 11, 12, 13, 20, 21, 22, 23, 99]
    assert domains.test_y.names == [f"trainB/0.tif[{number}]" for number in range(4)]  # a whole file
    assert domains.pairs.tolist() == [[i, i] for i in range(8)]
    assert "trainA: 9 images in 3 files" in domains.notes
    split = "1 of 3 files with several images of trainB are held out for validation"
    assert f"No testB in {data}: {split}" in domains.notes
    (data / "testA").mkdir()
    (data / "trainA" / "flat.png").rename(data / "testA" / "flat.png")
    first = load(data)
    assert [image[0, 0, 0] for image in stack(first.train_x)] == [0, 10, 20]
    assert (
        "trainA: 3 files with several pages, slices or frames, for example trainA/0.tif (4); only the first of each is"
        " used: --stacks all uses all"
    ) in first.notes


def test_channels_that_are_not_used_are_named(tmp_path):
    pages = {"ome": True, "metadata": {"axes": "CYX"}, "photometric": "minisblack"}
    for domain, shape, options in (
        ("A", (4, 16, 20), pages),
        ("B", (16, 20, 4), {"photometric": "rgb", "extrasamples": (0,)}),
    ):
        (tmp_path / f"train{domain}").mkdir()
        for name in ("0.tif", "1.tif"):
            tifffile.imwrite(tmp_path / f"train{domain}" / name, np.zeros(shape, np.uint8), **options)
    note = "trainA: 1 image with more channels than are used, for example trainA/1.tif (4): --channels_x 4 uses all"
    for notes in (load(tmp_path).notes, inspect(tmp_path).notes):
        assert note in notes and note.replace("trainA", "trainB").replace("_x", "_y") in notes
    assert not any(text.startswith("train") for text in load(tmp_path, channels_x=4, channels_y=4).notes)


def test_the_last_slices_of_a_single_file_are_held_out(tmp_path):
    for domain in "AB":
        save_stack(tmp_path / f"train{domain}" / "a.tif", range(40))
    domains = load(tmp_path, stacks="all", max_dataset_size=30)
    assert (len(domains.train_x), domains.test_x.names) == (30, [f"trainA/a.tif[{i}]" for i in range(32, 40)])
    assert not reader._opened_files  # all images are in memory
    (tmp_path / "trainB" / "a.tif").write_bytes(b"II*\0")
    with pytest.raises(UserError, match=r"1 of 42 images cannot be used.*trainB/a.tif\[0\] .a damaged TIFF"):
        load(tmp_path, stacks="all")
