// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"slices"

	"github.com/meshcni/meshcni/interception"
)

// track is what connection tracking does behind raw.
func (e *engine) track(ts threads) threads {
	var tracked threads
	for _, t := range ts.list {
		zone := t.flow.zone
		t.flow.zoned = false
		if t.flow.kind != noFlow || t.flow.untracked {
			if t.flow.kind == noFlow {
				t.flow.zone = 0
			}
			e.add(&tracked, t)
			continue
		}
		t.flow = flow{}
		plausible, refused := e.split(t, e.plausible())
		e.add(&tracked, refused)
		there, other := e.split(plausible, e.and(e.variable(e.known), e.not(e.variable(e.unseen)), e.equals(e.zone, uint32(zone))))
		found, invalid := e.split(there, e.recognised())
		found.flow = flow{
			kind: knownFlow, zone: zone, mark: mark{flow: ^interception.Mark(0)}, dstSettled: true, srcSettled: true, confirmed: true,
		}
		begun, none := e.split(other, e.begins())
		begun.flow = flow{kind: newFlow, zone: zone}
		e.add(&tracked, invalid, found, begun, none)
	}
	return tracked
}

// recognised is where a packet of a flow fits into it: the opener of a connection that was not answered can repeat the opening or reset it,
// and nothing else.
func (e *engine) recognised() ref {
	waits := e.without(e.protocol(interception.ProtocolTCP), e.or(e.variable(e.answered), e.variable(e.midstream)))
	repeats := e.or(e.opens(), e.flagged(func(f interception.TCPFlag) bool { return f&interception.FlagRST != 0 }))
	return e.or(e.variable(e.reply), e.or(e.not(waits), repeats))
}

// plausible is where connection tracking takes the flags for those of TCP.
func (e *engine) plausible() ref {
	const fin, syn, rst, ack, urg = interception.FlagFIN, interception.FlagSYN, interception.FlagRST, interception.FlagACK, interception.FlagURG
	combinations := []interception.TCPFlag{syn, syn | urg, syn | ack, rst, rst | ack, fin | ack, fin | ack | urg, ack, ack | urg}
	return e.or(e.variable(e.udp), e.flagged(func(f interception.TCPFlag) bool {
		return slices.Contains(combinations, f&^interception.FlagPSH)
	}))
}

// begins is where a packet that no flow knows can be the first that is seen of one.
func (e *engine) begins() ref {
	const answer = interception.FlagSYN | interception.FlagACK
	return e.or(e.variable(e.udp), e.flagged(func(f interception.TCPFlag) bool {
		return f&(interception.FlagFIN|interception.FlagRST) == 0 && f&answer != answer
	}))
}
