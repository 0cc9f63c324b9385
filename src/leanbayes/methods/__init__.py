"""One file, one method; one line here for each."""

from leanbayes.methods.base import Method as Method
from leanbayes.methods.base import methods as methods
from leanbayes.methods.map import MAP as MAP
from leanbayes.methods.mean_field import MeanField as MeanField
