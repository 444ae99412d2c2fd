// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
)

// Taint keeps pods from a new node until the plugin is installed. Its effect doesn't matter here.
// The program that creates the node sets it, for example with the kubelet's --register-with-taints
// (https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/).
type Taint struct {
	Account Account
	// Node is the node's name, Key the taint's.
	Node, Key string
}

// attempts is how often Remove tries while other programs edit the node.
const attempts = 5

// errChanged means that another program edited the node's taints meanwhile.
var errChanged = errors.New("other programs keep changing the node's taints")

// Remove removes the taint from the node, and reports whether the node had it. A node that does not
// exist has no taints. The error ends with a remedy.
func (t Taint) Remove(ctx context.Context) (removed bool, err error) {
	for range attempts {
		if removed, err = t.remove(ctx); !errors.Is(err, errChanged) {
			break
		}
	}
	if err != nil {
		return false, fmt.Errorf("take the taint %s off node %s: %w; by hand: kubectl taint nodes %s %s-", t.Key, t.Node, err, t.Node, t.Key)
	}
	return removed, nil
}

type operation struct {
	Op    string            `json:"op"`
	Path  string            `json:"path"`
	Value []json.RawMessage `json:"value"`
}

// remove makes the API server replace all taints by the other ones, if they are still those that
// were read.
func (t Taint) remove(ctx context.Context) (removed bool, err error) {
	all, err := t.read(ctx)
	if err != nil {
		return false, err
	}
	others := []json.RawMessage{}
	for _, taint := range all {
		var named struct{ Key string }
		if err := json.Unmarshal(taint, &named); err != nil {
			return false, fmt.Errorf("can't decode a taint of the node: %w", err)
		}
		if named.Key != t.Key {
			others = append(others, taint)
		}
	}
	if len(others) == len(all) {
		return false, nil
	}
	const path = "/spec/taints"
	patch, err := json.Marshal([]operation{{"test", path, all}, {"replace", path, others}})
	if err != nil {
		return false, err
	}
	answer, err := t.Account.Send(ctx, http.MethodPatch, t.path(), "application/json-patch+json", string(patch))
	switch {
	case err != nil:
		return false, err
	case answer.Status == http.StatusOK:
		return true, nil
	// The test of a taint failed.
	case answer.Status == http.StatusConflict, answer.Status == http.StatusUnprocessableEntity:
		return false, errChanged
	default:
		return false, unexpected(answer, "patch")
	}
}

// read returns the node's taints, each as the API server has it.
func (t Taint) read(ctx context.Context) ([]json.RawMessage, error) {
	answer, err := t.Account.Send(ctx, http.MethodGet, t.path(), "application/json", "")
	if err != nil {
		return nil, err
	}
	var node struct {
		Kind     string
		Metadata struct{ Name string }
		Spec     struct{ Taints []json.RawMessage }
		Reason   string
	}
	err = json.Unmarshal(answer.Body, &node)
	switch {
	case answer.Status == http.StatusNotFound && node.Reason == "NotFound":
		return nil, nil
	case answer.Status != http.StatusOK:
		return nil, unexpected(answer, "get")
	case err != nil || node.Kind != "Node" || node.Metadata.Name != t.Node:
		return nil, errors.Join(err, fmt.Errorf("%s answers with something other than the node", t.Account.Server.Host))
	}
	return node.Spec.Taints, nil
}

func (t Taint) path() []string { return []string{"api", "v1", "nodes", t.Node} }

func unexpected(answer Answer, verb string) error {
	if answer.Status == http.StatusForbidden {
		return fmt.Errorf("the service account may not %s nodes: allow it by a role", verb)
	}
	return answer.Unexpected()
}
