"""Transformer models: embeddings (stems), blocks, the three bodies and their readouts."""

from multihead.models.block import TransformerBlock, TransformerStack
from multihead.models.config import ModelConfig
from multihead.models.embeddings import AudioEmbedding, PatchEmbedding, TokenEmbedding
from multihead.models.feed_forward import FeedForward
from multihead.models.readouts import ClassifierReadout, LanguageModel, LMReadout, TaskModel
from multihead.models.transformer import Decoder, Encoder, EncoderDecoder

__all__ = [
    "AudioEmbedding",
    "ClassifierReadout",
    "Decoder",
    "Encoder",
    "EncoderDecoder",
    "FeedForward",
    "LMReadout",
    "LanguageModel",
    "ModelConfig",
    "PatchEmbedding",
    "TaskModel",
    "TokenEmbedding",
    "TransformerBlock",
    "TransformerStack",
]
