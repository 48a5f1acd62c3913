import numpy as np
import pytest

from multihead.report import ConfusionMatrix, HeadTable, LengthHistogram, TrainingCurve
from multihead.report.data import display_name


def test_names_of_scores() -> None:
    assert display_name("strict.f1") == "entity F1"
    assert display_name("conlleval.macro_f1") == "conlleval macro F1"
    assert display_name("recall@5") == "recall@5"


def test_address() -> None:
    heads = HeadTable({"entropy": np.ones((3, 4))}, stack="decoder", kind="cross")
    assert heads.address(2, 1) == "decoder.2.cross.1"


def test_sizes_must_agree() -> None:
    with pytest.raises(ValueError, match="3 labels need"):
        ConfusionMatrix(("a", "b", "c"), [[1, 2], [3, 4]])
    with pytest.raises(ValueError, match="'loss': 3 steps, 2 values"):
        TrainingCurve("loss", [1, 2, 3], [1, 2], "Loss")
    with pytest.raises(ValueError, match="2 bars need 3 edges, not 2"):
        LengthHistogram([0, 1], [5, 6])
    with pytest.raises(ValueError, match="the same for all"):
        HeadTable({"entropy": np.ones((3, 4)), "self": np.ones((4, 3))})
