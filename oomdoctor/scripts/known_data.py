"""How many samples public datasets have, and how large they are.

From the pages of `keras.datasets` and of TensorFlow Datasets. Images of various sizes have none.
"""

from __future__ import annotations

from oomdoctor.scripts.layout import Dims

KERAS: dict[str, tuple[int, int, Dims]] = {
    "mnist": (60_000, 10_000, (28, 28)),
    "fashion_mnist": (60_000, 10_000, (28, 28)),
    "cifar10": (50_000, 10_000, (32, 32, 3)),
    "cifar100": (50_000, 10_000, (32, 32, 3)),
}
"""Of `keras.datasets`: samples to train and to test, and the shape of one, in bytes."""

TFDS: dict[str, tuple[int, Dims | None]] = {
    "mnist": (60_000, (28, 28, 1)),
    "fashion_mnist": (60_000, (28, 28, 1)),
    "kmnist": (60_000, (28, 28, 1)),
    "emnist": (697_932, (28, 28, 1)),
    "cifar10": (50_000, (32, 32, 3)),
    "cifar100": (50_000, (32, 32, 3)),
    "svhn_cropped": (73_257, (32, 32, 3)),
    "stl10": (5_000, (96, 96, 3)),
    "horses_or_humans": (1_027, (300, 300, 3)),
    "rock_paper_scissors": (2_520, (300, 300, 3)),
    "celeb_a": (162_770, (218, 178, 3)),
    "eurosat": (27_000, (64, 64, 3)),
    "imagenet_resized": (1_281_167, (64, 64, 3)),
    "cats_vs_dogs": (23_262, None),
    "tf_flowers": (3_670, None),
    "oxford_flowers102": (1_020, None),
    "oxford_iiit_pet": (3_680, None),
    "beans": (1_034, None),
    "food101": (75_750, None),
    "malaria": (27_558, None),
    "colorectal_histology": (5_000, (150, 150, 3)),
    "stanford_dogs": (12_000, None),
    "caltech101": (3_059, None),
    "imagenet2012": (1_281_167, None),
    "imagenette": (9_469, None),
    "patch_camelyon": (262_144, (96, 96, 3)),
    "deep_weeds": (17_509, (256, 256, 3)),
    "plant_village": (54_303, None),
    "uc_merced": (2_100, (256, 256, 3)),
}
"""Of `tfds.load`: samples of the `train` split, and the shape of one image."""

TFDS_NOT_IMAGES = frozenset(
    ("imdb_reviews", "ag_news_subset", "movielens", "glue", "iris", "titanic", "wine_quality",
     "german_credit_numeric", "penguins", "yelp_polarity_reviews", "ted_hrlr_translate")
)  # fmt: skip
"""Of `tfds.load`: texts and tables, which are small."""
