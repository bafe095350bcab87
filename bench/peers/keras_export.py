"""Keras networks as tf2onnx writes them to ONNX, for ulp to read: images as [N, H, W, C], with Transposes around.

    VENV/bin/python bench/peers/keras_export.py FOLDER
    build/release/bin/onnx_import FOLDER

Four networks with random weights. Beside each NAME.onnx lie two sets of inputs and what ONNX Runtime computes from
them (NAME.0.x0.npy, NAME.0.y0.npy); Keras's own results are compared here. Needs tensorflow-cpu, tf2onnx and
onnxruntime, in an environment of their own: TensorFlow wants other versions of common packages than the other peers.
"""

import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import onnxruntime
import tensorflow as tf
import tf2onnx
from keras import layers

from differences import largest_share

WORDS, LENGTH, SIDE = 50, 12, 16
RUNS = (1, 7)  # batches


def convolutions():
    x = inputs = keras.Input((SIDE, SIDE, 3), name="x")
    x = layers.Conv2D(8, 3, padding="same", use_bias=False)(x)
    x = layers.ReLU()(layers.BatchNormalization()(x))
    y = layers.Conv2D(8, 3, padding="same", activation="relu")(x)
    x = layers.MaxPooling2D(2)(layers.Add()([x, y]))
    x = layers.Conv2D(12, 3, strides=2, padding="same", activation="relu")(x)  # pads one side more than the other
    x = layers.Flatten()(layers.AveragePooling2D(2)(x))  # in the order of NHWC
    return keras.Model(inputs, layers.Dense(10, activation="softmax")(layers.Dropout(0.2)(x)))


def depthwise():
    x = inputs = keras.Input((SIDE, SIDE, 3), name="x")
    for filters, stride in ((8, 2), (12, 1)):
        x = layers.Conv2D(filters, 1, use_bias=False)(x)
        x = layers.ReLU(6.0)(layers.BatchNormalization()(x))
        x = layers.DepthwiseConv2D(3, strides=stride, padding="same", use_bias=False)(x)
        x = layers.Activation("swish")(layers.BatchNormalization()(x))
    x = layers.SeparableConv2D(16, 3, padding="same")(x)
    gate = layers.Dense(16, activation="sigmoid")(layers.GlobalAveragePooling2D(keepdims=True)(x))
    return keras.Model(inputs, layers.Dense(10)(layers.GlobalAveragePooling2D()(layers.Multiply()([x, gate]))))


def decoder():
    x = inputs = keras.Input((SIDE, SIDE, 3), name="x")
    x = a = layers.Conv2D(8, 3, padding="same", activation="relu")(x)
    x = layers.Conv2D(8, 3, strides=2, padding="same", activation="relu")(x)
    x = layers.Conv2DTranspose(8, 2, strides=2, activation="relu")(x)
    x = layers.Concatenate()([x, a])
    return keras.Model(inputs, layers.Conv2D(2, 1)(layers.UpSampling2D(2)(x)))


def recurrent():
    inputs = keras.Input((LENGTH,), dtype="int32", name="x")
    x = layers.Embedding(WORDS, 8)(inputs)
    x = layers.Bidirectional(layers.LSTM(6, return_sequences=True))(x)
    x = layers.LayerNormalization()(layers.LSTM(6)(x))
    x = keras.activations.gelu(layers.Dense(16)(x), approximate=True)  # else an Erfc, which ONNX has not
    return keras.Model(inputs, layers.Dense(3)(x))


def settle(model, random):
    """Weights and statistics that batch norms would have after some training."""
    for layer in model.layers:
        if isinstance(layer, layers.BatchNormalization):
            shape = layer.gamma.shape
            layer.set_weights([random.uniform(0.6, 1.2, shape), random.uniform(-0.2, 0.2, shape),
                               random.uniform(-0.2, 0.2, shape), random.uniform(0.5, 1.5, shape)])


def record(model, path, random):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    worst = 0.0
    for run, batch in enumerate(RUNS):
        shape = (batch,) + model.inputs[0].shape[1:]
        text = model.inputs[0].dtype == "int32"
        x = random.integers(0, WORDS, shape, np.int32) if text else random.standard_normal(shape, np.float32)
        y = session.run(None, {session.get_inputs()[0].name: x})[0]
        np.save(f"{path[:-5]}.{run}.x0.npy", x)
        np.save(f"{path[:-5]}.{run}.y0.npy", y)
        theirs = model(x, training=False).numpy()
        worst = max(worst, float(largest_share(y, theirs)))
    return worst


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    folder = parser.parse_args().folder
    os.makedirs(folder, exist_ok=True)
    for make in (convolutions, depthwise, decoder, recurrent):
        keras.utils.set_random_seed(0)
        random = np.random.default_rng(0)
        model = make()
        settle(model, random)
        path = os.path.join(folder, f"{make.__name__}.onnx")
        one = model.inputs[0]
        signature = [tf.TensorSpec((None,) + one.shape[1:], one.dtype, name="x")]
        function = tf.function(lambda x, of=model: of(x, training=False), input_signature=signature)
        tf2onnx.convert.from_function(function, input_signature=signature, opset=17, output_path=path)
        print(f"{make.__name__}: ONNX Runtime against Keras {record(model, path, random):.1e}", flush=True)


if __name__ == "__main__":
    main()
