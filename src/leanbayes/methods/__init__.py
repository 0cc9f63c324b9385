"""One file, one method; one line here for each."""

from leanbayes.methods.base import Method as Method
from leanbayes.methods.base import methods as methods
from leanbayes.methods.batch_ensemble import BatchEnsemble as BatchEnsemble
from leanbayes.methods.implicit import Implicit as Implicit
from leanbayes.methods.map import MAP as MAP
from leanbayes.methods.mean_field import MeanField as MeanField
from leanbayes.methods.patching import Patching as Patching
from leanbayes.methods.rank_one import RankOne as RankOne
from leanbayes.methods.shared_ensemble import SharedEnsemble as SharedEnsemble
