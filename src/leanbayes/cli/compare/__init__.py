"""`leanbayes compare` and `join`: several methods on one data set under one budget, one table."""
