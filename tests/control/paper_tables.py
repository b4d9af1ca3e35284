"""What Flexible Communication measured, as its tables say."""

from __future__ import annotations

# Table VI, 8 ranks, latency 1 ms: parameters, Gbit/s, ratio, and milliseconds of AG, ART-Ring, ART-Tree. The paper
# gives no parameter counts; the first three models fit with ImageNet-sized heads, ViT's rows fit 133.7 million.
PARAMETERS = {"ResNet18": 11.69e6, "ResNet50": 25.56e6, "AlexNet": 61.10e6, "ViT": 133.7e6}


TABLE_VI = [
    ("ResNet18", 10, 0.1, 54, 35, 43.2),
    ("ResNet18", 10, 0.01, 7.66, 18.1, 12.2),
    ("ResNet18", 10, 0.001, 3.28, 16.7, 9),
    ("ResNet18", 5, 0.1, 107.76, 52.5, 76.3),
    ("ResNet18", 5, 0.01, 13.83, 20.8, 16.1),
    ("ResNet18", 5, 0.001, 4.25, 17.9, 10.1),
    ("ResNet18", 1, 0.1, 526.3, 194.7, 345.6),
    ("ResNet18", 1, 0.01, 51.93, 34.1, 41.9),
    ("ResNet18", 1, 0.001, 8.86, 19.5, 12.8),
    ("ResNet50", 10, 0.1, 115.1, 52.9, 83.4),
    ("ResNet50", 10, 0.01, 14.35, 20.3, 15.9),
    ("ResNet50", 10, 0.001, 4.65, 18.1, 10),
    ("ResNet50", 5, 0.1, 232, 94.7, 156.2),
    ("ResNet50", 5, 0.01, 28.1, 26.1, 24.2),
    ("ResNet50", 5, 0.001, 5.3, 17.8, 10.5),
    ("ResNet50", 1, 0.1, 1148, 405.5, 745),
    ("ResNet50", 1, 0.01, 126.5, 58.8, 83.7),
    ("ResNet50", 1, 0.001, 14.35, 21, 16.1),
    ("AlexNet", 10, 0.1, 271.8, 106.8, 180.4),
    ("AlexNet", 10, 0.01, 32.73, 25.2, 25.8),
    ("AlexNet", 10, 0.001, 6, 18.6, 11.1),
    ("AlexNet", 5, 0.1, 544.5, 200.4, 354.8),
    ("AlexNet", 5, 0.01, 61.75, 34.8, 42.6),
    ("AlexNet", 5, 0.001, 8.92, 19.3, 13.1),
    ("AlexNet", 1, 0.1, 2718.7, 964.4, 1778),
    ("AlexNet", 1, 0.01, 282.7, 111.8, 186.8),
    ("AlexNet", 1, 0.001, 31.33, 27, 27.3),
    ("ViT", 10, 0.1, 592.77, 238.6, 401.2),
    ("ViT", 10, 0.01, 68.48, 36.2, 46.2),
    ("ViT", 10, 0.001, 9.15, 19.2, 12.9),
    ("ViT", 5, 0.1, 1206, 424.3, 779.1),
    ("ViT", 5, 0.01, 127.45, 58, 86.2),
    ("ViT", 5, 0.001, 15.3, 21.4, 16.9),
    ("ViT", 1, 0.1, 5973, 2047, 3852),
    ("ViT", 1, 0.01, 601.8, 222.8, 385.2),
    ("ViT", 1, 0.001, 59.68, 36.7, 44.4),
]


# Table II, 8 ranks: parameters, (latency ms, Gbit/s), milliseconds of the dense ring. The text names the two tensor
# sizes, 100 million and 1 billion parameters, and the column fits them.
TABLE_II = [
    (1e8, 10, 10, 716),
    (1e8, 10, 5, 1271),
    (1e8, 10, 1, 5773),
    (1e8, 100, 10, 1975),
    (1e8, 100, 5, 2530),
    (1e8, 100, 1, 7028),
    (1e9, 10, 10, 5774),
    (1e9, 10, 5, 11380),
    (1e9, 10, 1, 56190),
    (1e9, 100, 10, 7024),
    (1e9, 100, 5, 12621),
    (1e9, 100, 1, 57442),
]
