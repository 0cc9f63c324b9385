"""`leanbayes demo`: the library's main job on embedded real data, in a few minutes."""
