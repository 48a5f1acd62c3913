"""SpecAugment (Park et al. 2019): bands of frequency and stretches of time are masked while a model trains."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class SpecAugment:
    """How much is masked; `share` bounds each stretch of time by a share of the recording."""

    frequency_masks: int = 2
    frequency_width: int = 15  # mel bands at most
    time_masks: int = 2
    time_width: int = 40  # frames at most
    share: float = 0.2

    def __call__(self, features: Tensor, generator: torch.Generator) -> Tensor:
        """features [mels, frames] -> a masked copy; what is masked gets the recording's mean.

        All draws come from `generator`, always the same number of them: the next recording's do not depend on this
        one's length.
        """
        masked, fill = features.clone(), features.mean()
        mels, frames = features.shape
        longest = min(self.time_width, int(self.share * frames))
        draws = torch.rand(self.frequency_masks + self.time_masks, 2, generator=generator).tolist()
        for number, (width, start) in enumerate(draws):
            rows = number < self.frequency_masks
            most, total = (min(self.frequency_width, mels), mels) if rows else (longest, frames)
            size = int(width * (most + 1))
            first = int(start * (total - size + 1))
            if rows:
                masked[first : first + size] = fill
            else:
                masked[:, first : first + size] = fill
        return masked
