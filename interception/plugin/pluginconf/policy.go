// SPDX-License-Identifier: Apache-2.0

package pluginconf

import (
	"errors"
	"fmt"
	"slices"
)

// The values of a fail policy.
const (
	FailOpen   = "open"
	FailClosed = "closed"
)

// FailPolicies are the values of [FailPolicy].Default; an empty one is FailClosed.
func FailPolicies() []string { return []string{FailClosed, FailOpen} }

// FailPolicy says what becomes of a pod that no source knows: closed, it is not started; open, it is left alone. The zero value is
// closed for all.
type FailPolicy struct {
	// Default is FailOpen, FailClosed or empty for FailClosed.
	Default string `json:"default,omitempty"`
	// Open and Closed are namespaces that go before the default. None is in both.
	Open   []string `json:"open,omitempty"`
	Closed []string `json:"closed,omitempty"`
}

// Opens says whether it is open for a namespace. What names the namespace goes before the default.
func (p FailPolicy) Opens(namespace string) bool {
	if p.Default == FailOpen {
		return !slices.Contains(p.Closed, namespace)
	}
	return slices.Contains(p.Open, namespace)
}

// Validate says what is wrong with the policy.
func (p FailPolicy) Validate() error {
	var errs []error
	if p.Default != "" && !slices.Contains(FailPolicies(), p.Default) {
		errs = append(errs, fmt.Errorf(`fail_policy.default is %q, and should be "closed" or "open"`, p.Default))
	}
	for _, namespace := range p.Open {
		if slices.Contains(p.Closed, namespace) {
			errs = append(errs, fmt.Errorf("fail_policy has namespace %q both in open and in closed: remove it from one", namespace))
		}
	}
	return errors.Join(errs...)
}

// StatusPolicy says when STATUS may report that the plugin isn't ready. As long as it does, a node starts no pods but those in the host's
// network, and renews no tokens of the others, so it must not keep the node agent from either. The empty one is StatusAfterFirstReady.
type StatusPolicy string

// The policies, as the plugin's README explains them.
const (
	StatusStrict          StatusPolicy = "strict"
	StatusAfterFirstReady StatusPolicy = "after-first-ready"
	StatusOff             StatusPolicy = "off"
)

// StatusPolicies are the values of [StatusPolicy].
func StatusPolicies() []string {
	return []string{string(StatusStrict), string(StatusAfterFirstReady), string(StatusOff)}
}

// Validate says whether it is one of them, or empty.
func (p StatusPolicy) Validate() error {
	if p != "" && !slices.Contains(StatusPolicies(), string(p)) {
		return fmt.Errorf(`status_policy is %q, and should be "strict", "after-first-ready" or "off"`, string(p))
	}
	return nil
}
