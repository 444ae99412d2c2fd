// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/sidecar"
)

// rules are those of one pod, plan or live namespace.
type rules struct {
	// name is the name of the pod or the workload, such as "Pod shop/cart-0"; empty for plans and
	// live namespaces.
	name string
	// state is what exists, or for a pod or a plan, what would exist.
	state interception.State
	// addresses are the pod's; nil if unknown.
	addresses []netip.Prefix
	// alone is the reason why the pod has no rules; nil if it has rules.
	alone *notCaptured
	// err is the reason why the rules of one of several pods are unknown; nil if they are known.
	err error
	// several is true if the source has other pods.
	several bool
}

// notCaptured is the reason why a pod has no plan.
type notCaptured struct {
	decision sidecar.Decision
	template bool
}

func (n *notCaptured) String() string {
	text := fmt.Sprintf("the pod is left alone: %s; to plan it all the same, add --anyway", n.decision)
	if n.template {
		text += "; a template usually gets its proxy from the injector, when a pod is made of it"
	}
	return text
}

func names(all []rules) string {
	var texts []string
	for _, r := range all {
		texts = append(texts, strconv.Quote(r.name))
	}
	return strings.Join(texts, ", ")
}
