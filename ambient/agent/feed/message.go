// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
)

// The most bytes of a message, with its end of line. Each pod that the API server stores fits: its
// annotations have 256 KiB at most, which JSON can make six times as long.
const (
	maxFromSource = 4 << 20
	maxFromAgent  = 8 << 10
)

// version1 is the only version of the protocol.
const version1 = 1

// ErrMessage is wrapped by the errors of messages that do not parse, or are too long.
var ErrMessage = errors.New("invalid message")

// ErrVersion is wrapped by the error of a connection whose sides have no version of the protocol in
// common.
var ErrVersion = errors.New("the sides of the feed speak no common version of its protocol: run both from one release")

// The messages. A namespace and a pod are those of package ambient.
type (
	// agentHello is the agent's first message: the versions that it speaks.
	agentHello struct {
		Versions []int `json:"versions"`
	}
	// sourceHello is the source's first message: the version of all that follows.
	sourceHello struct {
		Version int `json:"version"`
	}
	// refusal is the source's last message. Versions are those that it speaks, if that is the reason.
	refusal struct {
		Reason   reason `json:"reason"`
		Message  string `json:"message"`
		Versions []int  `json:"versions,omitempty"`
	}
	// gone says that a pod does not exist any more.
	gone struct {
		UID string `json:"uid"`
	}
	// complete says that the agent has been told of all pods.
	complete struct{}
	// annotation asks for a pod's status annotation. Its number tells its answer from others.
	annotation struct {
		Number    uint64         `json:"number"`
		Namespace string         `json:"namespace"`
		Name      string         `json:"name"`
		UID       string         `json:"uid"`
		Status    ambient.Status `json:"status,omitempty"`
	}
	// answer says what became of the annotation of that number. Error is why the agent must ask again.
	answer struct {
		Number uint64 `json:"number"`
		Result result `json:"result"`
		Error  string `json:"error,omitempty"`
	}
)

// reason is why the source ends a connection. docs/ambient-feed.md says what each one means.
type reason string

const (
	reasonForbidden reason = "Forbidden"
	reasonVersion   reason = "UnsupportedVersion"
	reasonMessage   reason = "InvalidMessage"
)

// result is what became of an annotation. An unknown one of a later release counts as resultAgain.
type result string

const (
	resultDone  result = "done"
	resultGone  result = "gone"
	resultAgain result = "again"
)

// pod is the pod that gets the annotation.
func (a *annotation) pod() interception.Pod {
	return interception.Pod{Namespace: a.Namespace, Name: a.Name, UID: a.UID}
}

// kinds are the names of messages on the wire, each with a function that makes such a message.
type kinds map[string]func() any

func fromSource() kinds {
	return kinds{
		"hello":     func() any { return &sourceHello{} },
		"refused":   func() any { return &refusal{} },
		"namespace": func() any { return &ambient.Namespace{} },
		"pod":       func() any { return &ambient.Pod{} },
		"gone":      func() any { return &gone{} },
		"complete":  func() any { return &complete{} },
		"annotated": func() any { return &answer{} },
	}
}

func fromAgent() kinds {
	return kinds{
		"hello":    func() any { return &agentHello{} },
		"annotate": func() any { return &annotation{} },
	}
}

// kindOf returns the name of a message on the wire.
func kindOf(message any) string {
	for _, known := range []kinds{fromSource(), fromAgent()} {
		for kind, fresh := range known {
			if reflect.TypeOf(fresh()) == reflect.TypeOf(message) {
				return kind
			}
		}
	}
	return fmt.Sprintf("%T", message)
}

// marshal returns a message as a line that has no more than most bytes. The error wraps
// [ErrMessage].
func marshal(message any, most int) ([]byte, error) {
	kind := kindOf(message)
	if err := check(message); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrMessage, kind, err)
	}
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(map[string]any{kind: message}); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrMessage, kind, err)
	}
	if line.Len() > most {
		return nil, fmt.Errorf("%w: %s: it has %d bytes, and may have %d", ErrMessage, kind, line.Len(), most)
	}
	return line.Bytes(), nil
}

// parse returns the message in a line. It is nil if the line has no kind that is known: a later
// release of the same version may add some. Unknown fields are ignored. The error wraps
// [ErrMessage].
func parse(line []byte, known kinds) (any, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(line, &fields); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMessage, err)
	}
	if fields == nil {
		return nil, fmt.Errorf("%w: it is no JSON object", ErrMessage)
	}
	var message any
	for kind, value := range fields {
		fresh, is := known[kind]
		if !is {
			continue
		}
		if message != nil {
			return nil, fmt.Errorf("%w: it is of two kinds, and %q is one of them", ErrMessage, kind)
		}
		message = fresh()
		err := json.Unmarshal(value, message)
		if err == nil {
			err = check(message)
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrMessage, kind, err)
		}
	}
	return message, nil
}

// check says what is wrong with a message.
func check(message any) error {
	switch m := message.(type) {
	case *ambient.Namespace:
		return present("name", m.Name)
	case *ambient.Pod:
		if slices.ContainsFunc(m.Addresses, func(a netip.Addr) bool { return !a.IsValid() }) {
			return errors.New("one of its addresses is empty")
		}
		return errors.Join(present("uid", m.UID), present("namespace", m.Namespace), present("name", m.Name))
	case *gone:
		return present("uid", m.UID)
	case *annotation:
		return errors.Join(present("uid", m.UID), present("namespace", m.Namespace), present("name", m.Name))
	}
	return nil
}

// present returns an error if a field is empty.
func present(field, value string) error {
	if value == "" {
		return fmt.Errorf("it has no %s", field)
	}
	return nil
}

// slim returns the part of a pod that ambient mode reads, which is all that messages have of it.
func slim(pod ambient.Pod) *ambient.Pod {
	return &ambient.Pod{
		Pod: interception.Pod{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Labels: pod.Labels, Annotations: pod.Annotations,
			ServiceAccount: pod.ServiceAccount, HostNetwork: pod.HostNetwork,
		},
		Phase: pod.Phase, Addresses: pod.Addresses, Created: pod.Created, Ready: pod.Ready,
	}
}
