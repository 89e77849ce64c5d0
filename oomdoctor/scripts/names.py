"""Full names of what TensorFlow, Keras and NumPy offer, one spelling for each thing."""

from __future__ import annotations

import re

MENTIONS = (b"tensorflow", b"keras")
"""A file without either word imports neither, so that nothing can be found in it."""

_KERAS = re.compile(r"(tensorflow\.(python\.)?keras|tf_keras|keras\.(api|src)(\._v\d)?)(?=\.|$)")
_TENSORFLOW = re.compile(r"tensorflow\.compat\.v[12](?=\.|$)")

FOREIGN = frozenset(
    (
        "dask", "datasets", "flax", "grain", "jax", "joblib", "matplotlib", "mxnet", "optax",
        "pandas", "polars", "pyspark", "scipy", "sklearn", "torch", "torchvision", "webdataset",
        "xarray", "collections", "itertools", "functools", "os", "sys", "re", "json", "random",
        "logging", "pathlib", "glob", "time", "math", "queue", "multiprocessing",
    )
)  # fmt: skip
"""Packages whose objects are never a dataset, a model or a tensor of TensorFlow."""

STRATEGIES = frozenset(
    (
        "tensorflow.distribute.MirroredStrategy",
        "tensorflow.distribute.MultiWorkerMirroredStrategy",
        "tensorflow.distribute.TPUStrategy",
        "tensorflow.distribute.experimental.MultiWorkerMirroredStrategy",
        "tensorflow.distribute.experimental.TPUStrategy",
        "tensorflow.distribute.experimental.CentralStorageStrategy",
    )
)

MODEL_MAKERS = frozenset(
    (
        "keras.Model",
        "keras.Sequential",
        "keras.models.Model",
        "keras.models.Sequential",
        "keras.models.load_model",
        "keras.models.clone_model",
        "keras.models.model_from_json",
        "keras.saving.load_model",
    )
)

SEQUENCES = frozenset(
    ("keras.utils.Sequence", "keras.utils.PyDataset", "keras.utils.data_utils.Sequence")
)

BATCHED_LOADERS = frozenset(
    (
        "keras.utils.image_dataset_from_directory",
        "keras.utils.text_dataset_from_directory",
        "keras.utils.audio_dataset_from_directory",
        "keras.utils.timeseries_dataset_from_array",
        "keras.preprocessing.image_dataset_from_directory",
        "keras.preprocessing.text_dataset_from_directory",
        "keras.preprocessing.timeseries_dataset_from_array",
    )
)
"""Functions that give a dataset of batches."""

RECORD_READERS = frozenset(
    (
        "tensorflow.data.TFRecordDataset",
        "tensorflow.data.FixedLengthRecordDataset",
        "tensorflow.data.Dataset.from_generator",
        "tensorflow.data.Dataset.load",
        "tensorflow_datasets.load",
    )
)
"""Functions that give a dataset of samples."""

PICTURE_READERS = {
    "cv2.imread": "uint8",
    "imageio.imread": "uint8",
    "imageio.v2.imread": "uint8",
    "imageio.v3.imread": "uint8",
    "matplotlib.image.imread": None,
    "matplotlib.pyplot.imread": None,
    "scipy.misc.imread": "uint8",
    "scipy.ndimage.imread": "uint8",
    "skimage.io.imread": "uint8",
    "skimage.data.imread": "uint8",
    "tifffile.imread": None,
    "SimpleITK.ReadImage": None,
    "keras_preprocessing.image.load_img": "uint8",
    "PIL.Image.open": "uint8",
    "keras.utils.load_img": "uint8",
    "keras.preprocessing.image.load_img": "uint8",
}
"""Functions that read one picture, and the dtype it has as an array."""

COLOR_LOADERS = frozenset(name for name in PICTURE_READERS if name.endswith("load_img"))

LISTINGS = {
    "os.listdir": "files",
    "os.scandir": "files",
    "os.walk": "walk",
    "glob.glob": "files",
    "glob.iglob": "files",
    "imutils.paths.list_images": "files",
    "tensorflow.io.gfile.glob": "files",
    "tensorflow.io.gfile.listdir": "files",
    "pandas.read_csv": "table",
    "pandas.read_excel": "table",
    "pandas.read_json": "table",
    "pandas.read_pickle": "table",
}
"""Functions that give one thing for each sample."""

NOT_PICTURES = frozenset(
    (
        "HuMoments", "all", "any", "argmax", "argmin", "bincount", "calcHist", "contourArea",
        "count_nonzero", "countNonZero", "findContours", "histogram", "hog", "imshow", "imwrite",
        "imsave", "max", "mean", "median", "min", "minMaxLoc", "moments", "norm", "percentile",
        "regionprops", "save", "shape", "size", "std", "sum", "unique", "var",
    )
)  # fmt: skip
"""Functions of images that give something small."""

PICTURE_TO_ARRAY = frozenset(
    ("keras.utils.img_to_array", "keras.preprocessing.image.img_to_array",
     "keras_preprocessing.image.img_to_array")
)  # fmt: skip
"""Gives float32, whatever the picture."""

TENSOR_GIVERS = ("tensorflow.math.", "tensorflow.nn.", "tensorflow.linalg.", "keras.ops.")
SCALAR_GIVERS = frozenset(
    f"tensorflow.{place}{name}"
    for place in ("", "math.")
    for name in ("reduce_mean", "reduce_sum", "reduce_max", "reduce_min")
)
FLOAT64 = frozenset(("float64", "float", "double", "f8", "<f8", "d"))

TABULAR = frozenset(("reuters", "imdb", "boston_housing", "california_housing"))
"""Data of `keras.datasets` that is no pictures, and small."""
SMALL_PICTURES = frozenset(("mnist", "fashion_mnist"))


def canonical(name: str) -> str:
    """Return one spelling for names that mean the same.

    Example:
        >>> canonical("tensorflow.keras.Model"), canonical("tensorflow.compat.v1.split")
        ('keras.Model', 'tensorflow.split')
    """
    name = _TENSORFLOW.sub("tensorflow", name)
    name = _KERAS.sub("keras", name)
    if name == "tensorflow.data.experimental.AUTOTUNE":
        return "tensorflow.data.AUTOTUNE"
    return name


def is_foreign(name: str) -> bool:
    """Return whether a full name belongs to a package that is none of ours."""
    return name.partition(".")[0] in FOREIGN
