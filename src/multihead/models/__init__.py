"""Models: stems, blocks, the three bodies and their readouts."""

from multihead.models.block import Block, Stack
from multihead.models.config import ModelConfig
from multihead.models.embeddings import AudioStem, PatchStem, TokenStem
from multihead.models.feed_forward import FeedForward
from multihead.models.readouts import Classes, LanguageModel, Model, Vocabulary
from multihead.models.transformer import Decoder, Encoder, EncoderDecoder

__all__ = [
    "AudioStem",
    "Block",
    "Classes",
    "Decoder",
    "Encoder",
    "EncoderDecoder",
    "FeedForward",
    "LanguageModel",
    "Model",
    "ModelConfig",
    "PatchStem",
    "Stack",
    "TokenStem",
    "Vocabulary",
]
