"""leanbayes: calibrated, decomposed uncertainty for any PyTorch model.

model = lb.bayesianize(net, lb.MeanField(), example=x)
p = lb.predict(model, x, samples=20, likelihood=lb.Categorical())
p.probs, p.total, p.aleatoric, p.epistemic
"""

from leanbayes import data as data
from leanbayes import metrics as metrics
from leanbayes import models as models
from leanbayes import schedule as schedule
from leanbayes import select as select
from leanbayes.checkpoint import load as load
from leanbayes.checkpoint import save as save
from leanbayes.convert import bayesianize as bayesianize
from leanbayes.convert import collapse as collapse
from leanbayes.degrade import ood_inputs as ood_inputs
from leanbayes.diversity import Diversity as Diversity
from leanbayes.diversity import diversity as diversity
from leanbayes.edit import attach_kl as attach_kl
from leanbayes.errors import CheckpointError as CheckpointError
from leanbayes.errors import CollapsedMembers as CollapsedMembers
from leanbayes.errors import ConfigError as ConfigError
from leanbayes.errors import ConversionError as ConversionError
from leanbayes.errors import LeanBayesError as LeanBayesError
from leanbayes.errors import PlanError as PlanError
from leanbayes.fitting import fit_posterior as fit_posterior
from leanbayes.groups import param_groups as param_groups
from leanbayes.layers import Host as Host
from leanbayes.layers import register_host as register_host
from leanbayes.likelihood import Bernoulli as Bernoulli
from leanbayes.likelihood import Categorical as Categorical
from leanbayes.likelihood import Gaussian as Gaussian
from leanbayes.methods import MAP as MAP
from leanbayes.methods import SWAG as SWAG
from leanbayes.methods import BatchEnsemble as BatchEnsemble
from leanbayes.methods import Compose as Compose
from leanbayes.methods import DeepEnsemble as DeepEnsemble
from leanbayes.methods import DropConnect as DropConnect
from leanbayes.methods import Implicit as Implicit
from leanbayes.methods import Laplace as Laplace
from leanbayes.methods import MCDropout as MCDropout
from leanbayes.methods import MeanField as MeanField
from leanbayes.methods import Method as Method
from leanbayes.methods import Partial as Partial
from leanbayes.methods import Patching as Patching
from leanbayes.methods import RankOne as RankOne
from leanbayes.methods import SharedEnsemble as SharedEnsemble
from leanbayes.methods import methods as methods
from leanbayes.model import BayesianModel as BayesianModel
from leanbayes.objective import Objective as Objective
from leanbayes.objective import objective as objective
from leanbayes.plan import Plan as Plan
from leanbayes.predict import predict as predict
from leanbayes.prediction import Prediction as Prediction
from leanbayes.refresh import refresh_batchnorm as refresh_batchnorm
from leanbayes.regularizer import OODRegularizer as OODRegularizer
from leanbayes.regularizer import RegularizedObjective as RegularizedObjective
from leanbayes.report import ConversionReport as ConversionReport
from leanbayes.sensitivity import sensitivity as sensitivity
from leanbayes.version import __version__ as __version__
