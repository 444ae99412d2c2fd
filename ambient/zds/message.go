// SPDX-License-Identifier: Apache-2.0

package zds

import (
	"cmp"
	"errors"
	"fmt"
)

// MaxMessage is the size of both sides' buffers in bytes. A longer message is refused.
const MaxMessage = 1024

// Version1 is the only version of the protocol.
const Version1 = 1

// ErrMessage is wrapped by the errors of messages that do not parse, or are too long to send.
var ErrMessage = errors.New("invalid message")

// Workload is what the proxy must know of a pod.
type Workload struct {
	// UID is the pod's UID, which identifies it in all messages.
	UID string
	// Name, Namespace and ServiceAccount are the pod's; the proxy derives its identity from them.
	Name, Namespace, ServiceAccount string
}

// Kind is the kind of a [Request].
type Kind uint8

// The kinds. Their values are the numbers of the fields of WorkloadRequest.
const (
	// KindAdd tells the proxy to serve a pod. The packet carries the pod's network namespace.
	KindAdd Kind = 1
	// KindDel tells the proxy to forget a pod, and to end its connections.
	KindDel Kind = 2
	// KindSnapshotSent says that the proxy has been told of all pods.
	KindSnapshotSent Kind = 3
	// KindKeep tells the proxy to go on with a pod whose namespace the agent does not have. It comes
	// in a snapshot only.
	KindKeep Kind = 5
)

// String returns the kind's name.
func (k Kind) String() string {
	names := map[Kind]string{KindAdd: "add", KindDel: "del", KindSnapshotSent: "snapshot sent", KindKeep: "keep"}
	return cmp.Or(names[k], fmt.Sprintf("request %d", uint8(k)))
}

// Request is a message of the agent (WorkloadRequest).
type Request struct {
	// Kind is what the message says.
	Kind Kind
	// Workload is the pod. Only KindAdd has more than the UID, and KindSnapshotSent has nothing.
	Workload Workload
}

// Marshal returns the message. The error wraps [ErrMessage]: the message is too long.
func (r Request) Marshal() ([]byte, error) {
	var body []byte
	w := r.Workload
	switch r.Kind {
	case KindAdd:
		info := appendText(appendText(appendText(nil, 1, w.Name), 2, w.Namespace), 3, w.ServiceAccount)
		body = appendBytes(appendText(nil, 1, w.UID), 2, info)
	case KindDel:
		body = appendText(nil, 2, w.UID)
	case KindKeep:
		body = appendText(nil, 1, w.UID)
	case KindSnapshotSent:
	default:
		return nil, fmt.Errorf("%w: there is no %s", ErrMessage, r.Kind)
	}
	return bounded(appendBytes(nil, int(r.Kind), body))
}

// ParseRequest parses a message of the agent, as a proxy does. Unknown fields are ignored, as the
// protocol's language demands.
func ParseRequest(data []byte) (Request, error) {
	var r Request
	err := eachField(data, func(number int, value []byte) (err error) {
		switch kind := Kind(number); kind {
		case KindAdd, KindDel, KindKeep, KindSnapshotSent: // of several, the last one counts
			r.Kind = kind
			r.Workload, err = parseWorkload(kind, value)
		}
		return err
	})
	switch {
	case err != nil:
		return Request{}, err
	case r.Kind == 0:
		return Request{}, fmt.Errorf("%w: no request that this version knows", ErrMessage)
	case r.Kind != KindSnapshotSent && r.Workload.UID == "":
		return Request{}, fmt.Errorf("%w: %s without a UID", ErrMessage, r.Kind)
	}
	return r, nil
}

func parseWorkload(kind Kind, data []byte) (w Workload, err error) {
	named := kind != KindAdd // no other kind has the names
	err = eachField(data, func(number int, value []byte) error {
		switch {
		case kind == KindAdd && number == 2:
			named = true
			return parseInfo(&w, value)
		case number == 1 && (kind == KindAdd || kind == KindKeep), number == 2 && kind == KindDel:
			w.UID = string(value)
		}
		return nil
	})
	if err == nil && !named {
		err = fmt.Errorf("%w: %s without the pod's names", ErrMessage, kind)
	}
	return w, err
}

func parseInfo(w *Workload, data []byte) error {
	return eachField(data, func(number int, value []byte) error {
		switch number {
		case 1:
			w.Name = string(value)
		case 2:
			w.Namespace = string(value)
		case 3:
			w.ServiceAccount = string(value)
		}
		return nil
	})
}

// Hello is the proxy's first message (ZdsHello).
type Hello struct {
	// Version is [Version1]; 0 stands for a proxy that names none.
	Version uint32
}

// Marshal returns the message.
func (h Hello) Marshal() []byte { return appendNumber(nil, 1, uint64(h.Version)) }

// ParseHello parses the proxy's first message. A version that this side does not know is no error:
// the proxy names the latest that it speaks.
func ParseHello(data []byte) (Hello, error) {
	var h Hello
	err := eachValue(data, func(f field) error {
		if f.number == 1 && f.text == nil {
			h.Version = uint32(f.value)
		}
		return nil
	})
	if err != nil {
		return Hello{}, err
	}
	return h, nil
}

// Ack is the proxy's answer to a request (WorkloadResponse).
type Ack struct {
	// Error is why the proxy refuses the request; empty if it does not.
	Error string
}

// Marshal returns the message. The error wraps [ErrMessage]: the text is too long.
func (a Ack) Marshal() ([]byte, error) {
	return bounded(appendBytes(nil, 1, appendText(nil, 1, a.Error)))
}

// ParseAck parses the proxy's answer.
func ParseAck(data []byte) (Ack, error) {
	var a Ack
	found := false
	err := eachField(data, func(number int, value []byte) error {
		if number != 1 {
			return nil
		}
		found = true
		return eachField(value, func(number int, value []byte) error {
			if number == 1 {
				a.Error = string(value)
			}
			return nil
		})
	})
	switch {
	case err != nil:
		return Ack{}, err
	case !found:
		return Ack{}, fmt.Errorf("%w: an answer without an ack", ErrMessage)
	}
	return a, nil
}

func bounded(data []byte) ([]byte, error) {
	if len(data) > MaxMessage {
		return nil, fmt.Errorf("%w: it has %d bytes, and the proxy's buffer has %d", ErrMessage, len(data), MaxMessage)
	}
	return data, nil
}
