"""Writes distill.json: losses of distillation and their gradients for tests/distill/losses_golden_test.cpp.

    python tests/golden/make_distill.py       needs torch; made with 2.13.0

Everything is computed in float64, from the papers' formulas with plain PyTorch. A value is {"shape", "seed", "scale"}:
scale * (2 u - 1) of uniform(seed, count), which tests/quant/golden_data.h makes again and fp32 holds exactly; with
"masked" the last entry of the last axis is -10000.
"""

import json
import math
import pathlib

import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)


def uniform(seed, count):
    out = []
    for _ in range(count):
        seed = (seed * 6364136223846793005 + 1442695040888963407) % 2**64
        out.append((seed >> 40) / 2**24)
    return out


def make(value):
    shape = value["shape"]
    made = value["scale"] * (2 * torch.tensor(uniform(value["seed"], math.prod(shape))).view(shape) - 1)
    if value.get("masked"):
        made[..., -1] = -10000
    return made


# Losses: (student values, teacher values, targets, progress) -> scalar.


def kd(t):
    def loss(s, z, targets, progress):
        s, z = s[0].flatten(0, -2), z[0].flatten(0, -2)
        return t * t * F.kl_div(F.log_softmax(s / t, 1), F.softmax(z / t, 1), reduction="batchmean")
    return loss


def dkd(alpha, beta, t, warmup):
    def loss(s, z, targets, progress):
        s, z, targets = s[0].flatten(0, -2), z[0].flatten(0, -2), targets.flatten()
        total = 0
        for row in range(s.shape[0]):
            p, q = F.softmax(z[row] / t, 0), F.softmax(s[row] / t, 0)
            target = targets[row]
            pt, qt = p[target], q[target]
            total = total + alpha * (pt * torch.log(pt / qt) + (1 - pt) * torch.log((1 - pt) / (1 - qt)))
            for c in range(s.shape[1]):
                if c != target:
                    a, b = p[c] / (1 - pt), q[c] / (1 - qt)
                    total = total + beta * a * torch.log(a / b)
        return min(progress / warmup, 1) * t * t * total / s.shape[0]
    return loss


def mse(s, z, targets, progress):
    return ((s[0] - z[0]) ** 2).sum() / s[0].numel()


def cosine(s, z, targets, progress):
    axis = 1 if s[0].dim() == 4 else -1
    a, b = s[0].movedim(axis, -1).flatten(0, -2), z[0].movedim(axis, -1).flatten(0, -2)
    return F.cosine_embedding_loss(a, b, torch.ones(a.shape[0]))


def attention_transfer(s, z, targets, progress):
    size = [min(a, b) for a, b in zip(s[0].shape[2:], z[0].shape[2:])]
    def q(f):
        return F.normalize(F.adaptive_avg_pool2d(f, size).pow(2).mean(1).flatten(1), dim=1)
    return (q(s[0]) - q(z[0])).pow(2).mean()


def sp(s, z, targets, progress):
    def g(f):
        f = f.reshape(f.shape[0], -1)
        return F.normalize(f @ f.T, p=2, dim=1)
    return ((g(z[0]) - g(s[0])) ** 2).sum() / s[0].shape[0] ** 2


def huber(a, b):
    d = (a - b).abs()
    return torch.where(d <= 1, d * d / 2, d - 0.5)


def rkd(distance, angle):
    def distances(f):
        n = f.shape[0]
        pairs = {(i, j): (f[i] - f[j]).norm() for i in range(n) for j in range(n) if i != j}
        mean = sum(pairs.values()) / len(pairs)
        return {pair: d / mean for pair, d in pairs.items()}

    def angles(f):
        n, out = f.shape[0], {}
        for i in range(n):
            e = {j: (f[j] - f[i]) / (f[j] - f[i]).norm() for j in range(n) if j != i}
            for j in e:
                for k in e:
                    out[i, j, k] = (e[j] * e[k]).sum()
        return out

    def loss(s, z, targets, progress):
        s, z = s[0].flatten(1), z[0].flatten(1)
        n, total = s.shape[0], 0
        if distance:
            a, b = distances(s), distances(z)
            total = total + distance * sum(huber(a[p], b[p]) for p in a) / n**2
        if angle:
            a, b = angles(s), angles(z)
            total = total + angle * sum(huber(a[t], b[t]) for t in a) / n**3
        return total
    return loss


def pkt(s, z, targets, progress):
    def p(f):
        f = F.normalize(f.flatten(1), dim=1)
        similarity = (f @ f.T + 1) / 2
        return similarity / similarity.sum(1, keepdim=True)
    a, b = p(z[0]), p(s[0])
    return (a * torch.log((a + 1e-7) / (b + 1e-7))).mean()


def cc(gamma, order):
    def kernel(f):
        f = F.normalize(f.flatten(1), dim=1)
        product = f @ f.T
        return sum(math.exp(-2 * gamma) * (2 * gamma) ** p / math.factorial(p) * product**p for p in range(order + 1))

    def loss(s, z, targets, progress):
        return ((kernel(s[0]) - kernel(z[0])) ** 2).sum() / s[0].shape[0] ** 2
    return loss


def minilm(version, heads):
    def split(x):
        if not heads:
            return x
        if x.dim() == 4:  # (N, own heads, T, d): one head behind the other is (N, T, D)
            x = torch.cat(list(x.unbind(1)), dim=-1)
        return torch.stack(x.chunk(heads, dim=-1), dim=1)

    def relation(x, y):
        return F.softmax(x @ y.transpose(-1, -2) / math.sqrt(x.shape[-1]), dim=-1)

    def loss(s, z, targets, progress):
        s, z = [split(x) for x in s], [split(x) for x in z]
        pairs = [(0, 1), (2, 2)] if version == "v1" else [(0, 0), (1, 1), (2, 2)]
        total = 0
        for a, b in pairs:
            teacher, student = relation(z[a], z[b]), relation(s[a], s[b])
            kl = (teacher * (teacher / student).log()).sum(-1)  # (N, heads, T)
            total = total + kl.sum() / kl.numel()
        return total
    return loss


def tinybert_attention(s, z, targets, progress):
    s, z = (torch.where(x <= -1e2, torch.zeros_like(x), x) for x in (s[0], z[0]))
    return F.mse_loss(s, z)


def soft_cross_entropy(s, z, targets, progress):
    return F.cross_entropy(s[0].flatten(0, -2), F.softmax(z[0].flatten(0, -2), -1))


def hard(s, z, targets, progress):
    return F.cross_entropy(s[0].flatten(0, -2), z[0].flatten(0, -2).argmax(1))


def cases():
    seeds = iter(range(1, 1000))

    def value(shape, scale, **more):
        return {"shape": shape, "seed": next(seeds), "scale": scale, **more}

    def one(name, loss, student, teacher, scale=4, options=(), places=1, **more):
        return loss, {"loss": name, "options": list(options), "progress": 0,
                      "student": [value(student, scale, **more.get("value", {})) for _ in range(places)],
                      "teacher": [value(teacher, scale, **more.get("value", {})) for _ in range(places)],
                      **{k: v for k, v in more.items() if k != "value"}}

    def alike(name, loss, shape, **more):
        return one(name, loss, shape, shape, **more)

    yield alike("kd", kd(4), [5, 7], scale=8)
    yield alike("kd", kd(1.5), [3, 11], options=["T=1.5"])
    yield alike("kd", kd(20), [2, 3, 5], scale=32, options=["T=20"])
    yield alike("mutual", kd(1), [5, 7])
    classes = [6, 0, 3, 3, 1]
    yield alike("dkd", dkd(1, 8, 4, 20), [5, 7], scale=8, targets=classes, progress=31)
    yield alike("dkd", dkd(1, 8, 4, 20), [5, 7], scale=8, targets=classes, progress=4.5)
    yield alike("dkd", dkd(0.5, 2, 3, 10), [2, 3, 5], scale=8, targets=[[4, 0, 2], [1, 1, 3]], progress=10,
                options=["alpha=0.5", "beta=2", "T=3", "warmup=10"])
    yield alike("dkd", dkd(1, 8, 4, 20), [3, 2], scale=8, targets=[0, 1, 1], progress=20)
    yield alike("logits", mse, [5, 7])
    yield alike("mse", mse, [3, 5, 2, 3], scale=1)
    yield alike("cosine", cosine, [5, 9], scale=1)
    yield alike("cosine", cosine, [2, 3, 7], scale=1)
    yield alike("cosine", cosine, [2, 5, 2, 3], scale=1)
    yield one("at", attention_transfer, [3, 5, 4, 3], [3, 7, 4, 3])
    yield one("at", attention_transfer, [3, 5, 8, 6], [3, 2, 4, 3])
    yield one("at", attention_transfer, [2, 3, 3, 7], [2, 2, 7, 5])
    yield one("sp", sp, [5, 3, 2, 2], [5, 13], scale=1)
    yield one("rkd", rkd(25, 50), [5, 7], [5, 3, 2, 2], scale=1)
    yield one("rkd", rkd(2, 3), [4, 3], [4, 5], scale=1, options=["distance=2", "angle=3"])
    yield one("rkd_distance", rkd(1, 0), [6, 5], [6, 3], scale=1)
    yield one("rkd_angle", rkd(0, 1), [6, 5], [6, 3], scale=1)
    yield one("pkt", pkt, [7, 5], [7, 3, 2, 2], scale=1)
    yield one("cc", cc(0.4, 2), [6, 5], [6, 7], scale=1)
    yield one("cc", cc(0.7, 5), [6, 5], [6, 3, 2, 2], scale=1, options=["gamma=0.7", "order=5"])
    yield one("minilm", minilm("v1", 0), [2, 3, 5, 4], [2, 3, 5, 6], scale=2, places=3)
    yield one("minilm", minilm("v1", 2), [2, 5, 6], [2, 5, 10], scale=2, places=3, options=["heads=2"])
    yield one("minilm", minilm("v2", 6), [2, 3, 5, 4], [2, 2, 5, 9], scale=2, places=3,
              options=["version=v2", "heads=6"])
    yield alike("tinybert_attention", tinybert_attention, [2, 3, 5, 5], value={"masked": True})
    yield alike("soft_cross_entropy", soft_cross_entropy, [5, 7])
    yield alike("soft_cross_entropy", soft_cross_entropy, [2, 3, 5])
    yield alike("hard", hard, [5, 7])
    yield alike("hard", hard, [2, 3, 5])


def with_result(loss, case):
    student = [make(value).requires_grad_() for value in case["student"]]
    teacher = [make(value) for value in case["teacher"]]
    targets = torch.tensor(case["targets"]) if "targets" in case else None
    result = loss(student, teacher, targets, case["progress"])
    gradients = torch.autograd.grad(result, student)
    return {**case, "value": result.item(), "gradients": [g.flatten().tolist() for g in gradients]}


# Contrastive distillation: steps of training on two memories, without an optimizer.


def crd(case):
    n, m, t, momentum = case["samples"], case["negatives"], case["T"], case["momentum"]
    tensors = {name: make(value) for name, value in case["tensors"].items()}
    student_memory, teacher_memory = (tensors.pop(name + "_memory") for name in ("student", "teacher"))
    classes = [-1 - i for i in range(n)]
    constants = [None, None]
    torch.manual_seed(case["generator"])
    steps = []
    for step in case["steps"]:
        batch = step["samples"]
        for sample, target in zip(batch, step.get("targets", [])):
            classes[sample] = target
        by_class = sorted(range(n), key=lambda i: (classes[i], i))
        entries = []
        for sample, random in zip(batch, torch.randint(2**63 - 1, (len(batch), m)).tolist()):
            if case["other_classes"]:
                others = [i for i in by_class if classes[i] != classes[sample]]
            else:
                others = [i for i in range(n) if i != sample]
            entries.append([sample] + [others[r % len(others)] for r in random])
        if case["positive"] == "same_class":
            for row, sample, random in zip(entries, batch, torch.randint(2**63 - 1, (len(batch), 1)).tolist()):
                own = [i for i in by_class if classes[i] == classes[sample]]
                row[0] = own[random[0] % len(own)]
        leaves = {"value": make(step["student"])}
        leaves.update({name: tensors[name].clone() for name in sorted(tensors)})
        for leaf in leaves.values():
            leaf.requires_grad_()
        s = F.normalize(leaves["value"].flatten(1) @ leaves["student.weight"].T + leaves["student.bias"], dim=1)
        z = F.normalize(make(step["teacher"]).flatten(1) @ leaves["teacher.weight"].T + leaves["teacher.bias"], dim=1)
        loss = 0
        for which, (own, memory) in enumerate([(s, teacher_memory), (z, student_memory)]):
            p = torch.stack([torch.exp(memory[row] @ v / t) for row, v in zip(entries, own)])
            if constants[which] is None:
                constants[which] = p.mean().item() * n
            p = p / constants[which]
            noise = m / n
            loss = loss - (torch.log(p[:, 0] / (p[:, 0] + noise)).sum()
                           + torch.log(noise / (p[:, 1:] + noise)).sum()) / len(batch)
        gradients = torch.autograd.grad(loss, list(leaves.values()))
        for memory, new in [(student_memory, s), (teacher_memory, z)]:
            for sample, v in zip(batch, new.detach()):
                memory[sample] = F.normalize(momentum * memory[sample] + (1 - momentum) * v, dim=0)
        steps.append({**step, "value": loss.item(),
                      "gradients": {name: g.flatten().tolist() for name, g in zip(leaves, gradients)}})
    return {**case, "steps": steps, "z": constants, "student_memory": student_memory.flatten().tolist(),
            "teacher_memory": teacher_memory.flatten().tolist()}


def crd_cases():
    seeds = iter(range(2000, 3000))

    def value(*shape, scale=1):
        return {"shape": list(shape), "seed": next(seeds), "scale": scale}

    def one(batches, n=13, dim=5, **more):
        steps = [{"samples": samples, **({"targets": targets} if targets else {}),
                  "student": value(len(samples), 7), "teacher": value(len(samples), 2, 2, 2)}
                 for samples, targets in batches]
        tensors = {"student.weight": value(dim, 7, scale=0.5), "student.bias": value(dim, scale=0.5),
                   "teacher.weight": value(dim, 8, scale=0.5), "teacher.bias": value(dim, scale=0.5),
                   "student_memory": value(n, dim), "teacher_memory": value(n, dim)}
        return {"samples": n, "dim": dim, "negatives": 6, "T": 0.5, "momentum": 0.5, "positive": "same_sample",
                "other_classes": True, "generator": 7, "tensors": tensors, "steps": steps, **more}

    batches = [([4, 0, 11], [1, 0, 1]), ([2, 12, 7], [0, 1, 2]), ([11, 3, 2], [1, 2, 0])]
    yield one(batches)
    yield one(batches, other_classes=False, momentum=0.75, T=0.25)
    yield one(batches, positive="same_class", negatives=12)
    yield one([(samples, None) for samples, targets in batches])


def main():
    path = pathlib.Path(__file__).with_name("distill.json")
    losses = [with_result(*case) for case in cases()]
    contrasts = [crd(case) for case in crd_cases()]
    path.write_text('{"made with": "torch %s",\n"cases": [\n%s\n],\n"crd": [\n%s\n]}\n' % (
        torch.__version__.split("+")[0], ",\n".join(map(json.dumps, losses)), ",\n".join(map(json.dumps, contrasts))))


main()
