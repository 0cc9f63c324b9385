"""A trained model behind a page and a JSON endpoint, on this machine.

`Served` says what is served, `Batching` owns the model and answers waiting requests together,
`Server` speaks HTTP. The standard library's threading server carries it: a handful of fixed routes
for people beside the machine needs no framework, and every limit stands in a few lines here.
"""

from leanbayes.serving.batching import Batching
from leanbayes.serving.limits import Limits
from leanbayes.serving.refusal import Refusal
from leanbayes.serving.served import Served
from leanbayes.serving.server import Server

__all__ = ["Batching", "Limits", "Refusal", "Served", "Server"]
