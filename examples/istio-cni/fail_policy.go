// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"slices"
)

// The values of a fail policy.
const (
	failOpen   = "open"
	failClosed = "closed"
)

// failPolicy says what becomes of a pod that no source knows: closed, it is not started; open, it is left alone.
type failPolicy struct {
	Default string   `json:"default"`
	Open    []string `json:"open"`
	Closed  []string `json:"closed"`
}

// opens says whether it is open for a namespace. What names the namespace goes before the default.
func (p failPolicy) opens(namespace string) bool {
	if p.Default == failOpen {
		return !slices.Contains(p.Closed, namespace)
	}
	return slices.Contains(p.Open, namespace)
}

func (p failPolicy) validate() error {
	var errs []error
	switch p.Default {
	case "", failOpen, failClosed:
	default:
		errs = append(errs, fmt.Errorf(`fail_policy.default is %q, and should be "closed" or "open"`, p.Default))
	}
	for _, namespace := range p.Open {
		if slices.Contains(p.Closed, namespace) {
			errs = append(errs, fmt.Errorf("fail_policy has namespace %q both in open and in closed: remove it from one", namespace))
		}
	}
	return errors.Join(errs...)
}
