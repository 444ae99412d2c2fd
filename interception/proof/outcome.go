// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
)

// same is where packets that ended in two threads, each in a world of its own, have the same outcome.
func (q question) same(a, b state) ref {
	if a.end != b.end || a.taker != b.taker {
		return never
	}
	return q.and(q.sameFlow(a.flow, b.flow), q.sameEndpoint(a.src, b.src), q.sameEndpoint(a.dst, b.dst), q.sameMark(a.mark, b.mark))
}

func (q question) sameFlow(a, b flow) ref {
	if a.kind > b.kind {
		a, b = b, a
	}
	switch {
	case a.kind == b.kind && a.zone == b.zone:
		return q.sameMark(a.mark, b.mark)
	case a.kind == noFlow && b.kind == knownFlow: // one that was not looked up stays as it was
		unanswered := q.without(q.variable(q.reply), q.variable(q.answered))
		return q.without(q.sameMark(mark{flow: ^interception.Mark(0)}, b.mark), unanswered)
	default:
		return never
	}
}

// Same reports whether two packets end alike, in the sense of [Equivalent].
func Same(a, b trace.Outcome) bool {
	if a.Verdict != b.Verdict || a.Cause != b.Cause || !sameFlows(a.Flow, b.Flow) {
		return false
	}
	switch a.Verdict {
	case trace.Sent:
		return a.Header == b.Header && a.Link == b.Link
	case trace.Delivered:
		return a.Header == b.Header && a.Listener == b.Listener && (a.Socket == nil) == (b.Socket == nil)
	case trace.Refused:
		return a.Header == b.Header
	case trace.Dropped, trace.Rejected, trace.Unroutable, trace.Unknown:
	}
	return true
}

// sameFlows compares what connection tracking keeps, which is nothing of an untracked flow; the sockets at the ends follow from it.
func sameFlows(a, b *trace.Flow) bool {
	if none := a == nil || a.Untracked; none || b == nil || b.Untracked {
		return none == (b == nil || b.Untracked)
	}
	x, y := *a, *b
	x.Opener, x.Taker, y.Opener, y.Taker = nil, nil, nil, nil
	return x == y
}
