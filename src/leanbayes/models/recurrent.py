"""A recurrent classifier of event sequences."""

from typing import Final, Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from leanbayes.errors import ConfigError

Cell = Literal["lstm", "gru"]

CELLS: Final[dict[str, type[nn.LSTM] | type[nn.GRU]]] = {"lstm": nn.LSTM, "gru": nn.GRU}


class LSTMClassifier(nn.Module):
    """An embedding of event ids, recurrent layers and a linear layer on their last states.

    S. Hochreiter and J. Schmidhuber, "Long Short-Term Memory", Neural Computation 1997; the shape
    of the mortality model of M. Dusenberry et al., "Analyzing the Role of Model Uncertainty for
    Electronic Health Records", CHIL 2020, which the Rank-1 paper converts.

    Args:
        events: Number of event ids, 0 to events - 1.
        num_classes: Number of logits.
        width: Features of an embedded event and of a recurrent state.
        layers: Recurrent layers.
        cell: "lstm" or "gru".
        bidirectional: Whether a second state reads the sequence from its end.

    Raises:
        ConfigError: The cell has another name.

    Example:
        >>> net = LSTMClassifier(events=100, num_classes=2, width=16, cell="gru")
        >>> net.recurrent
        GRU(16, 16, batch_first=True)
    """

    def __init__(
        self,
        events: int,
        num_classes: int = 2,
        width: int = 128,
        *,
        layers: int = 1,
        cell: Cell = "lstm",
        bidirectional: bool = False,
    ) -> None:
        super().__init__()
        if cell not in CELLS:
            raise ConfigError(f'unknown cell {cell!r}; write cell="lstm" or cell="gru"')
        self.embedding = nn.Embedding(events, width)
        self.recurrent = CELLS[cell](
            width, width, layers, batch_first=True, bidirectional=bidirectional
        )
        self.fc = nn.Linear(width * (2 if bidirectional else 1), num_classes)

    def forward(self, events: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Map event ids [B, T] to logits [B, num_classes].

        Args:
            events: Ids; what lies beyond a row's length is ignored.
            lengths: Events of each row [B], at least 1; by default T.
        """
        embedded = self.embedding(events)
        if lengths is not None:
            embedded = pack_padded_sequence(embedded, lengths.cpu(), True, enforce_sorted=False)
        _, state = self.recurrent(embedded)
        hidden: Tensor = state[0] if isinstance(state, tuple) else state
        ends = 2 if self.recurrent.bidirectional else 1
        out: Tensor = self.fc(torch.cat(hidden[-ends:].unbind(), 1))
        return out
