// SPDX-License-Identifier: Apache-2.0

package event

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/meshcni/meshcni/interception"
)

// maxBody bounds a request and an answer, in bytes. A pod has a name of at most 253 bytes and a few
// addresses.
const maxBody = 16 << 10

// maxAddresses is more than any network gives a pod.
const maxAddresses = 64

// Pod is a pod whose sandbox begins or ends, as the plugin knows it.
type Pod struct {
	Namespace, Name string
	// UID is empty if the runtime does not tell it, and always from Istio's plugin.
	UID string
	// Container is the id of the pod's sandbox (CNI_CONTAINERID). It is empty from Istio's plugin.
	Container string
	// Addresses are those that the plugins before have given the pod.
	Addresses []netip.Addr
}

// String returns namespace and name.
func (p Pod) String() string { return p.Namespace + "/" + p.Name }

func (p Pod) validate() error {
	switch {
	case p.Namespace == "" || p.Name == "":
		return errors.New("the request does not name a pod with its namespace")
	case len(p.Addresses) > maxAddresses:
		return fmt.Errorf("the pod has %d addresses, more than %d", len(p.Addresses), maxAddresses)
	}
	return nil
}

// request is the body of a request.
type request struct {
	Namespace string       `json:"namespace"`
	Name      string       `json:"name"`
	UID       string       `json:"uid,omitempty"`
	Container string       `json:"container,omitempty"`
	Addresses []netip.Addr `json:"addresses,omitempty"`
	Timeout   string       `json:"timeout,omitempty"`
}

// encodeRequest returns the body of a request. The agent is asked to answer a tenth of the time
// before the context ends.
func encodeRequest(ctx context.Context, pod Pod) ([]byte, error) {
	r := request{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Container: pod.Container, Addresses: pod.Addresses}
	if deadline, is := ctx.Deadline(); is {
		r.Timeout = (time.Until(deadline) * 9 / 10).String()
	}
	return json.Marshal(r)
}

// parseRequest reads the body of a request, and how long the plugin waits; 0 if it does not say.
func parseRequest(body []byte) (pod Pod, timeout time.Duration, err error) {
	var r request
	if err := json.Unmarshal(body, &r); err != nil {
		return Pod{}, 0, err
	}
	if r.Timeout != "" {
		if timeout, err = time.ParseDuration(r.Timeout); err != nil || timeout <= 0 {
			return Pod{}, 0, fmt.Errorf("timeout %q is no time to wait, such as 4.5s", r.Timeout)
		}
	}
	pod = Pod{Namespace: r.Namespace, Name: r.Name, UID: r.UID, Container: r.Container, Addresses: r.Addresses}
	return pod, timeout, pod.validate()
}

// istioRequest is the body of a request of Istio's plugin, with its own names.
type istioRequest struct {
	Netns, PodName, PodNamespace string
	IPs                          []struct {
		Address struct{ IP netip.Addr }
	}
}

// parseIstio reads the body of a request of Istio's plugin.
func parseIstio(body []byte) (pod Pod, path string, err error) {
	var r istioRequest
	if err := json.Unmarshal(body, &r); err != nil {
		return Pod{}, "", err
	}
	pod = Pod{Namespace: r.PodNamespace, Name: r.PodName}
	for _, ip := range r.IPs {
		pod.Addresses = append(pod.Addresses, ip.Address.IP.Unmap())
	}
	if r.Netns == "" {
		return pod, "", errors.New("the request names no network namespace")
	}
	return pod, r.Netns, pod.validate()
}

// Answer is the body of an answer to /v1/enrol: a decision, or an error.
type Answer struct {
	Capture bool                `json:"capture,omitempty"`
	Reason  interception.Reason `json:"reason,omitempty"`
	Detail  string              `json:"detail,omitempty"`
	OfPod   bool                `json:"ofPod,omitempty"`
	Error   *Error              `json:"error,omitempty"`
}

// answerOf returns the answer that tells of a decision.
func answerOf(d interception.Decision) Answer {
	return Answer{Capture: d.Capture, Reason: d.Reason, Detail: d.Detail, OfPod: d.OfPod}
}

func (a Answer) decision() interception.Decision {
	return interception.Decision{Capture: a.Capture, Reason: a.Reason, Detail: a.Detail, OfPod: a.OfPod}
}

// parseAnswer reads an answer. The error is that of the answer, or says why it is none.
func parseAnswer(status int, body []byte) (interception.Decision, error) {
	var a Answer
	switch err := json.Unmarshal(body, &a); {
	case err == nil && a.Error != nil && a.Error.Code != "":
		return a.decision(), a.Error
	case err != nil || status != 200 || a.Reason == "":
		return interception.Decision{}, &Error{
			Code: CodeProtocol, Message: fmt.Sprintf("the answer with status %d is none of this protocol: %.100q", status, body),
		}
	}
	return a.decision(), nil
}

// readAll reads a body of at most maxBody bytes.
func readAll(r io.Reader) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r, maxBody+1))
	if err == nil && len(body) > maxBody {
		err = fmt.Errorf("the body has more than %d bytes", maxBody)
	}
	return body, err
}
