import json

import same_tokens


def write(path, strategies):
    result = {"model": "m", "dtype": "fp32", "workload": "w", "num_requests": 2, "tensor_parallel_size": 1}
    runs = [{"result": {**result, "strategy": name, "output_digest": digest}} for name, digest in strategies.items()]
    path.write_text(json.dumps({"runs": runs}))
    return str(path)


def test_runs_with_one_digest_are_the_same(tmp_path, capsys):
    files = [write(tmp_path / "a.json", {"gpu-only": "12", "async": "12"}), write(tmp_path / "b.json", {"auto": "12"})]
    assert same_tokens.main(files) == 0
    assert "12: gpu-only (1), async (1), auto (1)" in capsys.readouterr().out


def test_another_digest_or_none_is_found(tmp_path):
    assert same_tokens.main([write(tmp_path / "a.json", {"gpu-only": "12", "async": "13"})]) == 1
    assert same_tokens.main([write(tmp_path / "b.json", {"gpu-only": None})]) == 1
    assert same_tokens.main([]) == 1
