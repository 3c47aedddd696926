from collm.benchmarks.markdown import markdown_table


def test_a_table_by_hand_and_a_bar_in_a_cell():
    assert markdown_table(("", "ms"), [("a", "1"), ("b", "2")]) == "|  | ms |\n| --- | --- |\n| a | 1 |\n| b | 2 |"
    assert markdown_table(["P(X | Y)"], []).splitlines()[0] == "| P(X \\| Y) |"
