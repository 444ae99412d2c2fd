// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/sidecar"
)

// rules are those of one pod, plan or live namespace.
type rules struct {
	// name is the name of the pod or the workload, such as "Pod shop/cart-0"; empty for plans and live namespaces.
	name string
	// state is what there is; of a pod and a plan, what would be there.
	state interception.State
	// addresses are those of the pod; nil where they are not known.
	addresses []netip.Prefix
	// alone says why the pod has no rules; nil where it has.
	alone *notCapturedError
	// err says why the pod's rules can't be told, where the source has more pods; nil where they can.
	err error
	// several says that the source has more pods than this one.
	several bool
}

// notCapturedError means that the pod has no plan.
type notCapturedError struct {
	decision sidecar.Decision
	template bool
}

func (e *notCapturedError) Error() string {
	text := fmt.Sprintf("the pod is left alone: %s; to plan it all the same, add --anyway", e.decision)
	if e.template {
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

// leftAlone says in words why there is no plan when the pod is left alone, which is an answer and no failure.
func leftAlone(command *cobra.Command, err error) error {
	if alone := (*notCapturedError)(nil); errors.As(err, &alone) {
		fmt.Fprintln(command.ErrOrStderr(), err)
		return errFindings
	}
	return err
}
