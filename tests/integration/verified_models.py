"""Models for `test_verified_estimate.py`."""


def with_an_unknown_size():
    """A model with an operation whose output is as large as its values say."""
    import keras
    from keras import layers

    inputs = keras.Input((32, 32, 3))
    x = layers.Conv2D(16, 3, padding="same", activation="relu", name="first")(inputs)
    x = layers.Lambda(rows_above_nothing, output_shape=(32, 32, 16), name="kept")(x)
    x = layers.GlobalAveragePooling2D()(x)
    model = keras.Model(inputs, layers.Dense(10, name="last")(x))
    model.compile("adam", "mse", jit_compile=False)
    return model


def rows_above_nothing(x):
    """Return a tensor after a look at the places of its elements, whose number no trace knows."""
    import tensorflow as tf

    places = tf.where(x > -1.0)
    return x * tf.cast(tf.reduce_max(places) >= 0, x.dtype)


def broken_at_run_time():
    """A model that can be traced and not run."""
    import keras
    import tensorflow as tf
    from keras import layers

    def broken(x):
        with tf.control_dependencies([tf.debugging.assert_less(tf.reduce_max(x), -1.0)]):
            return tf.identity(x)

    inputs = keras.Input((16,))
    x = layers.Lambda(broken, output_shape=(16,))(layers.Dense(16)(inputs))
    model = keras.Model(inputs, layers.Dense(1)(x))
    model.compile("adam", "mse", jit_compile=False)
    return model
