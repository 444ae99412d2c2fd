// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/podnetns"
)

// ReasonVirtualMachine is the reason of a decision about a pod that a selector matches, and whose
// application runs in a virtual machine.
const ReasonVirtualMachine interception.Reason = "virtual-machine"

// ErrVirtualMachine is wrapped by the error of [Agent.Enrol] if the pod's application runs in a
// virtual machine. It has no socket in the pod's namespace, so that rules there would capture its
// connections wrongly or not at all.
var ErrVirtualMachine = errors.New("the pod's application runs in a virtual machine, and cannot be captured from outside: " +
	"give the pod another runtime class, or keep it out of the ambient mesh")

// machineInterface is the one through which Kata Containers connect the virtual machine with the
// pod's namespace. The runtime makes it after the plugins.
const machineInterface = "tap0_kata"

// isMachine looks whether a namespace leads to a virtual machine, and notes it.
func (a *Agent) isMachine(uid string, namespace *interception.Netns) (bool, error) {
	is, err := hasInterface(namespace, machineInterface)
	if err != nil {
		return false, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if is {
		a.machines[uid] = true
	} else {
		delete(a.machines, uid) // an earlier sandbox of the pod may have been one
	}
	return is, nil
}

func machineError(pod podnetns.Pod) error {
	return fmt.Errorf("enrol pod %s: it has the interface %s: %w", pod, machineInterface, ErrVirtualMachine)
}
