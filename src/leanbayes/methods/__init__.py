"""One file, one method; one line here for each."""

from leanbayes.methods.base import Method as Method
from leanbayes.methods.base import methods as methods
from leanbayes.methods.batch_ensemble import BatchEnsemble as BatchEnsemble
from leanbayes.methods.compose import Compose as Compose
from leanbayes.methods.deep_ensemble import DeepEnsemble as DeepEnsemble
from leanbayes.methods.drop_connect import DropConnect as DropConnect
from leanbayes.methods.implicit import Implicit as Implicit
from leanbayes.methods.laplace import Laplace as Laplace
from leanbayes.methods.map import MAP as MAP
from leanbayes.methods.mc_dropout import MCDropout as MCDropout
from leanbayes.methods.mean_field import MeanField as MeanField
from leanbayes.methods.partial import Partial as Partial
from leanbayes.methods.patching import Patching as Patching
from leanbayes.methods.rank_one import RankOne as RankOne
from leanbayes.methods.shared_ensemble import SharedEnsemble as SharedEnsemble
from leanbayes.methods.swag import SWAG as SWAG
