"""Losses. Scaling by the number of rows is Torch's."""

import torch

from ._ops import add_op_namespace_prefix, ops

_KL_DIV = add_op_namespace_prefix("kl_div")
_TVD = add_op_namespace_prefix("tvd")
_JSD = add_op_namespace_prefix("jsd")
_CROSS_ENTROPY = add_op_namespace_prefix("cross_entropy")
_VOCAB = add_op_namespace_prefix("vocab_parallel")


@torch.library.custom_op(
    _KL_DIV,
    mutates_args=(),
    schema="(Tensor y, Tensor target, str reduction, bool log_target, float eps) -> Tensor",
)
def _kl_div(y, target, reduction, log_target, eps):
    if reduction == "none":
        return ops.kl_div_forward_none(y, target, eps, log_target)
    total = ops.kl_div_forward(y, target, eps, log_target).sum()
    return total / _count(y, reduction)


@torch.library.register_fake(_KL_DIV)
def _(y, target, reduction, log_target, eps):
    return y.new_empty(y.shape if reduction == "none" else (), dtype=torch.float32)


def _count(y, reduction):
    """What a sum is divided by."""
    return {"batchmean": y.shape[0], "mean": y.numel()}.get(reduction, 1)


def _save_kl_div(ctx, inputs, output):
    _, target, ctx.reduction, ctx.log_target, _ = inputs
    ctx.save_for_backward(target)


def _kl_div_backward(ctx, grad):
    (target,) = ctx.saved_tensors
    grads = ops.kl_div_backward(target, ctx.log_target) * grad
    return grads / _count(target, ctx.reduction), None, None, None, None


torch.library.register_autograd(_KL_DIV, _kl_div_backward, setup_context=_save_kl_div)


def kl_div(y_pred, y_true, reduction="batchmean", log_target=False, eps=1e-10):
    """Kullback-Leibler divergence of log-probabilities from a target."""
    return _kl_div(y_pred.contiguous(), y_true.contiguous(), reduction, log_target, eps)


@torch.library.custom_op(
    _VOCAB,
    mutates_args=(),
    schema="(Tensor x, Tensor target, int ignore_index, float alpha, float eps) "
    "-> (Tensor, Tensor, Tensor)",
)
def _vocab_parallel(x, target, ignore_index, alpha, eps):
    exp, predicted, total = ops.vocab_parallel_forward(
        x, x.amax(dim=-1).float(), target, 0, ignore_index
    )
    loss = torch.log(total) - predicted
    if alpha > 0:
        logs = torch.log(exp) - torch.log(total).unsqueeze(-1)
        loss = (1.0 - alpha) * loss + alpha * -(logs.sum(dim=-1) / x.shape[-1])
    return torch.where(target == ignore_index, torch.zeros_like(loss), loss), exp, total


@torch.library.register_fake(_VOCAB)
def _(x, target, ignore_index, alpha, eps):
    rows = x.new_empty(x.shape[0], dtype=torch.float32)
    return rows, x.new_empty(x.shape, dtype=torch.float32), torch.empty_like(rows)


def _save_vocab_parallel(ctx, inputs, output):
    x, target, *ctx.numbers = inputs
    ctx.dtype = x.dtype
    ctx.save_for_backward(target, *output[1:])


def _vocab_parallel_backward(ctx, grad, *_):
    target, exp, total = ctx.saved_tensors
    ignore_index, alpha, eps = ctx.numbers
    exp = exp.clone()
    ops.vocab_parallel_backward_(
        exp, total, target, grad.float().contiguous(), 0, ignore_index, alpha, eps, alpha > 0
    )
    return exp.to(ctx.dtype), None, None, None, None


torch.library.register_autograd(
    _VOCAB, _vocab_parallel_backward, setup_context=_save_vocab_parallel
)


def vocab_parallel_cross_entropy(logits, target, ignore_index=-100, label_smoothing=0.0):
    """Cross-entropy of logits of shape (S, B, V), of one process, for each token."""
    s, b, v = logits.shape
    x, flat = logits.contiguous().view(-1, v), target.reshape(-1).contiguous()
    return _vocab_parallel(x, flat, ignore_index, label_smoothing, label_smoothing / v)[0].view(
        s, b
    )


IGNORED = -100


def _labels(like, labels):
    """Labels and whether there are any, and how many rows count."""
    if labels is None:
        return like.new_empty(1, dtype=torch.int64), False, like.shape[0]
    return labels, True, (labels != IGNORED).sum().item()


@torch.library.custom_op(
    _TVD,
    mutates_args=(),
    schema="(Tensor p, Tensor q, Tensor? labels, str reduction) -> (Tensor, Tensor)",
)
def _tvd(p, q, labels, reduction):
    labels, there, rows = _labels(p, labels)
    scale = {"batchmean": 1.0 / rows, "mean": 1.0 / (rows * p.shape[1])}.get(reduction, 1.0)
    if reduction == "none":
        return ops.tvd_forward_none(p, q, labels, scale, there)
    loss, grads = ops.tvd_forward(p, q, labels, scale, there)
    return loss.sum(), grads


@torch.library.register_fake(_TVD)
def _(p, q, labels, reduction):
    return p.new_empty(
        p.shape if reduction == "none" else (), dtype=torch.float32
    ), torch.empty_like(p)


@torch.library.custom_op(
    _JSD,
    mutates_args=(),
    schema="(Tensor x, Tensor target, Tensor? labels, float beta) -> (Tensor, Tensor)",
)
def _jsd(x, target, labels, beta):
    labels, there, rows = _labels(x, labels)
    loss, grads = ops.jsd_forward(x, target, labels, round(beta * 10), rows, there)
    return loss.sum().to(x.dtype), grads


@torch.library.register_fake(_JSD)
def _(x, target, labels, beta):
    return x.new_empty(()), torch.empty_like(x)


def _save_gradient(ctx, inputs, output):
    ctx.save_for_backward(output[1])


def _scaled_gradient(ctx, grad, _):
    (grads,) = ctx.saved_tensors
    return grads * grad, None, None, None


for name in (_TVD, _JSD):
    torch.library.register_autograd(name, _scaled_gradient, setup_context=_save_gradient)


_SETTINGS = ["mean", 0.0, 0.0, False], ["mean", 1e-4, 0.1, True], ["sum", 0.0, 0.1, False]
"""What is compiled: reduction, scale of the z-loss, smoothing, whether everything is returned."""


@torch.library.custom_op(
    _CROSS_ENTROPY,
    mutates_args=(),
    schema="(Tensor x, Tensor target, Tensor? weight, float softcap, int setting) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def _cross_entropy(x, target, weight, softcap, setting):
    counted = target != IGNORED
    rows = counted.sum().item()
    kept = float(rows) if weight is None else weight[target.masked_select(counted)].sum().item()
    total = 0.0 if weight is None else weight.sum().item()
    x = x.clone()
    loss, z_loss, hits, predicted = ops.cross_entropy_(
        x, target, weight, rows, kept, total, softcap, setting
    )
    return loss.sum(), z_loss.sum(), hits.sum() / rows, predicted, x


@torch.library.register_fake(_CROSS_ENTROPY)
def _(x, target, weight, softcap, setting):
    one = x.new_empty(())
    return (
        one,
        torch.empty_like(one),
        one.new_empty((), dtype=torch.float32),
        torch.empty_like(target),
        torch.empty_like(x),
    )


def _save_cross_entropy(ctx, inputs, output):
    ctx.save_for_backward(output[4])


def _cross_entropy_backward(ctx, grad, *_):
    grads = ctx.saved_tensors[0].clone()
    ops.element_mul_(grads, grad)
    return grads, None, None, None, None


torch.library.register_autograd(
    _CROSS_ENTROPY, _cross_entropy_backward, setup_context=_save_cross_entropy
)


def cross_entropy(
    x,
    target,
    weight=None,
    lse_square_scale=0.0,
    label_smoothing=0.0,
    reduction="mean",
    softcap=None,
    extras=False,
):
    """Cross-entropy of logits; with ``extras`` the z-loss, the accuracy and what is predicted, too.

    Rows with the label -100 do not count. ``softcap`` goes with ``extras``.
    """
    setting = _SETTINGS.index([reduction, lse_square_scale, label_smoothing, extras])
    results = _cross_entropy(x.contiguous(), target.contiguous(), weight, softcap or 0.0, setting)
    return results[:4] if extras else results[0]


def tvd(p, q, shift_labels=None, reduction="batchmean"):
    """Total variation distance; rows with the label -100 do not count."""
    return _tvd(p.contiguous(), q.contiguous(), shift_labels, reduction)[0]


def jsd(x, target, shift_labels=None, beta=0.5):
    """Generalised Jensen-Shannon divergence of log-probabilities, for ``beta`` of 0, 0.5 and 1."""
    return _jsd(x.contiguous(), target.contiguous(), shift_labels, beta)[0]
