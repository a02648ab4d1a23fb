"""Learn a Spark dataframe: a model of each partition, merged in a tree.

    pip install . pandas pyarrow pyspark && python examples/spark_merge.py

It needs Java. Each partition is learned block by block, so that a worker holds one block of rows;
what is sent is the stored model. The same function takes dataframes of any cluster whose workers
have skokde.
"""

import pickle
from collections.abc import Iterator

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from sklearn.base import BaseEstimator, clone
from sklearn.datasets import load_iris

from skokde import OnlineKDEClassifier, merge


def learned(frame: DataFrame, estimator: BaseEstimator, target: str | None = None) -> BaseEstimator:
    """An estimator of all rows of a dataframe, all columns but the target being features."""

    def learn(blocks: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        model = clone(estimator)
        for block in blocks:
            if target is None:
                model.partial_fit(block)
            else:
                model.partial_fit(block.drop(columns=target), block[target])
        yield pd.DataFrame({"model": [pickle.dumps(model)]})

    models = frame.mapInPandas(learn, schema="model binary").rdd
    return models.map(lambda row: pickle.loads(row.model)).treeReduce(
        lambda first, second: merge([first, second])
    )


def main() -> None:
    spark = SparkSession.builder.master("local[2]").getOrCreate()
    rows = load_iris(as_frame=True).frame.sample(frac=1.0, random_state=0)
    frame = spark.createDataFrame(rows).repartition(4)
    classifier = learned(frame, OnlineKDEClassifier(), target="target")
    X, y = rows.drop(columns="target"), rows["target"]
    print(f"{classifier.class_count_.sum():g} rows, accuracy on them {classifier.score(X, y):.3f}")
    spark.stop()


if __name__ == "__main__":
    main()
