from sweep.analysis.differences import list_varying_parameters


def test_varying_parameters_are_those_that_differ_or_are_absent_somewhere():
    params = [{"a": 1, "b": [1], "c": True, "d": 0.5}, {"a": 1, "b": [2], "c": 1, "d": 0.5, "e": 1}]
    assert list_varying_parameters(params) == ("b", "c", "e")
    assert list_varying_parameters(params[:1]) == list_varying_parameters([]) == ()
