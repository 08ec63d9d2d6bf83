"""The loss at the output head, with its gradient computed on the way, and the target's labels.

Logits of all rows over the draft vocabulary would be the largest tensor of training by far; here
they exist for CHUNK rows at a time.
"""
import torch

CHUNK = 512
NO_LABEL = -1


def operands(states, head):
    """(matrix, flat states) in the type of the products, and where their gradients go: grad_states
    and, when head asks for one, grad_head."""
    kind = torch.bfloat16 if torch.is_autocast_enabled(states.device.type) else states.dtype
    grad_states = torch.empty(states.shape, dtype=torch.float32, device=states.device)
    grad_head = torch.zeros(head.shape, device=head.device) if head.requires_grad else None
    return head.detach().to(kind), states.detach().to(kind), grad_states, grad_head


def pulled_back(context, grad):
    """The stored gradients of states and head, times that of the loss."""
    grad_states, grad_head = context.saved_tensors
    states_kind, head_kind = context.kinds
    return ((grad_states * grad).to(states_kind),
            None if grad_head is None else (grad_head * grad).to(head_kind))


class HeadLoss(torch.autograd.Function):
    """Sum over rows of weight * (-sum_i p_i * log softmax(logits)[label_i]).

    states [N, d]; head [V, d]; labels int64 [N, n] with NO_LABEL for none; probs float32 [N, n];
    weights float32 [N]. The gradient goes to states, and to head if it asks for one.
    """

    @staticmethod
    def forward(context, states, head, labels, probs, weights):
        matrix, flat, grad_states, grad_head = operands(states, head)
        total = torch.zeros((), dtype=torch.float64, device=states.device)
        with torch.autocast(states.device.type, enabled=False):
            for at in range(0, len(flat), CHUNK):
                rows = slice(at, at + CHUNK)
                weight = weights[rows, None]
                index = labels[rows].clamp(min=0)
                prob = probs[rows] * (labels[rows] != NO_LABEL)
                mass = prob.sum(1, keepdim=True)
                # Every pass over the logits counts: softmax is one, and scaling is left to what is
                # small. d/dlogits = weight * (mass * softmax - p).
                soft = torch.softmax(flat[rows] @ matrix.T, -1)
                picked = soft.gather(1, index).float().clamp(min=1e-30)
                total -= (weight * prob * picked.log()).sum().double()
                if index.shape[1] == 1 and grad_head is None:
                    pull = mass * (soft @ matrix).float() - prob * matrix[index[:, 0]]
                    grad_states[rows] = weight * pull
                    continue
                grad = soft.scatter_add_(1, index, (-prob / mass.clamp(min=1e-30)).to(matrix.dtype))
                grad_states[rows] = weight * mass * (grad @ matrix).float()
                if grad_head is not None:
                    grad_head += (grad.T @ (weight * mass * flat[rows]).to(matrix.dtype)).float()
        context.save_for_backward(grad_states, grad_head)
        context.kinds = states.dtype, head.dtype
        return total.float()

    @staticmethod
    def backward(context, grad):
        return (*pulled_back(context, grad), None, None, None)


def head_loss(states, head, labels, probs, weights):
    return HeadLoss.apply(states, head, labels, probs, weights)


class Divergence(torch.autograd.Function):
    """Mean over rows of KL(truth || states), both through output matrices; see divergence()."""

    @staticmethod
    def forward(context, states, head, truth, truth_head):
        matrix, flat, grad_states, grad_head = operands(states, head)
        total = torch.zeros((), dtype=torch.float64, device=states.device)
        with torch.autocast(states.device.type, enabled=False):
            for at in range(0, len(flat), CHUNK):
                rows = slice(at, at + CHUNK)
                mine = torch.log_softmax((flat[rows] @ matrix.T).float(), -1)
                theirs = torch.log_softmax((truth[rows].to(truth_head.dtype)
                                            @ truth_head.T).float(), -1)
                probs = theirs.exp()
                total += (probs * (theirs - mine)).sum().double()
                grad = ((mine.exp() - probs) / len(flat)).to(matrix.dtype)
                grad_states[rows] = (grad @ matrix).float()
                if grad_head is not None:
                    grad_head += (grad.T @ flat[rows]).float()
        context.save_for_backward(grad_states, grad_head)
        context.kinds = states.dtype, head.dtype
        return (total / max(len(flat), 1)).float()

    @staticmethod
    def backward(context, grad):
        return (*pulled_back(context, grad), None, None)


def divergence(states, truth, head, truth_head):
    """Mean KL from the target's distribution (states truth [N, d] through truth_head) to that of
    states [N, d] through head, over the whole vocabulary."""
    return Divergence.apply(states, head, truth, truth_head)


def hard_labels(places):
    """Labels and probabilities of single tokens; places int64 [N], -1 = not in the draft
    vocabulary."""
    return places[:, None], torch.ones(len(places), 1, device=places.device)


@torch.no_grad()
def soft_labels(states, head, n):
    """The target's n most probable draft tokens with their probabilities, renormalised over these.

    states [N, d] are the target's own. n = 0: the whole distribution, labels [N, Vd].
    """
    labels, probs = [], []
    for at in range(0, len(states), CHUNK):
        logits = (states[at:at + CHUNK].to(head.dtype) @ head.T).float()
        if n == 0:
            labels.append(torch.arange(head.shape[0], device=head.device).expand(len(logits), -1))
            probs.append(torch.softmax(logits, -1))
        else:
            top, index = logits.topk(n, -1)
            labels.append(index)
            probs.append(torch.softmax(top, -1))
    return torch.cat(labels), torch.cat(probs)


@torch.no_grad()
def ranks(states, head, places):
    """How many draft tokens are more probable than the true one; UNREACHABLE outside the list.

    states [N, d], places int64 [N] (-1 = not in the list). Returns int64 [N].
    """
    out = torch.full_like(places, UNREACHABLE)
    for at in range(0, len(places), CHUNK):
        rows = slice(at, at + CHUNK)
        logits = (states[rows].to(head.dtype) @ head.T).float()
        wanted = logits.gather(1, places[rows].clamp(min=0)[:, None])
        # Ties go to the smaller id, as in the engine.
        before = torch.arange(logits.shape[1], device=logits.device) < places[rows][:, None]
        better = (logits > wanted) | ((logits == wanted) & before)
        out[rows] = torch.where(places[rows] >= 0, better.sum(1), out[rows])
    return out


UNREACHABLE = 1 << 20
