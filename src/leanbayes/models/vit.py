"""Vision transformer."""

import torch
from torch import Tensor, nn

from leanbayes.errors import ConfigError


class VisionTransformer(nn.Module):
    """Transformer blocks over the patches of an image and one class token.

    A. Dosovitskiy et al., "An Image is Worth 16x16 Words", ICLR 2021, in the tiny size of H.
    Touvron et al., "Training data-efficient image transformers & distillation through attention",
    ICML 2021: 5,717,416 parameters at 224 x 224 pixels, patches of 16 and 1,000 classes. The norm
    stands before each half of a block, and the hidden layer of a block is four times as wide.

    Args:
        image_size: Height and width of the images.
        patch: Height and width of a patch.
        num_classes: Number of logits.
        width: Features of a token.
        depth: Blocks.
        heads: Attention heads.

    Raises:
        ConfigError: The patch does not divide the image, or the heads do not divide the width.

    Example:
        >>> VisionTransformer(image_size=32, patch=4, num_classes=10, depth=2).position.shape
        torch.Size([1, 65, 192])
    """

    def __init__(
        self,
        image_size: int = 224,
        patch: int = 16,
        num_classes: int = 1000,
        *,
        width: int = 192,
        depth: int = 12,
        heads: int = 3,
    ) -> None:
        super().__init__()
        _check(image_size, patch, width, heads)
        tokens = (image_size // patch) ** 2 + 1
        self.patches = nn.Conv2d(3, width, patch, stride=patch)
        self.token = nn.Parameter(torch.empty(1, 1, width))
        self.position = nn.Parameter(torch.empty(1, tokens, width))
        # Blocks are made one by one: nn.TransformerEncoder would start them all with equal weights.
        self.blocks = nn.Sequential(*(_block(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.head = nn.Linear(width, num_classes)
        nn.init.trunc_normal_(self.token, std=0.02)
        nn.init.trunc_normal_(self.position, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        """Map images [B, 3, image_size, image_size] to logits [B, num_classes]."""
        patches = self.patches(x).flatten(2).transpose(1, 2)
        tokens = torch.cat((self.token.expand(len(x), -1, -1), patches), 1) + self.position
        out: Tensor = self.head(self.norm(self.blocks(tokens)[:, 0]))
        return out


def vit_tiny(
    image_size: int = 224, patch: int = 16, num_classes: int = 1000, depth: int = 12
) -> VisionTransformer:
    """Build ViT-Tiny, 192 features and 3 heads; see VisionTransformer for the arguments.

    For images of 32 x 32 pixels write image_size=32, patch=4.
    """
    return VisionTransformer(image_size, patch, num_classes, depth=depth)


def _check(image_size: int, patch: int, width: int, heads: int) -> None:
    """Refuse sizes that leave a rest."""
    if patch < 1 or image_size < patch or image_size % patch:
        raise ConfigError(
            f"patch must divide image_size, got {image_size} and {patch}; "
            "write image_size=224, patch=16"
        )
    if heads < 1 or width % heads:
        raise ConfigError(
            f"heads must divide width, got {heads} and {width}; write width=192, heads=3"
        )


def _block(width: int, heads: int) -> nn.TransformerEncoderLayer:
    """Make one block without dropout."""
    return nn.TransformerEncoderLayer(
        *(width, heads, 4 * width),
        dropout=0.0,
        activation="gelu",
        layer_norm_eps=1e-6,
        batch_first=True,
        norm_first=True,
    )
