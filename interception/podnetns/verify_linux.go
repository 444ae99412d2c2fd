// SPDX-License-Identifier: Apache-2.0

package podnetns

import (
	"errors"
	"fmt"
	"os"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/namespace"
)

func (f *Finder) verify(pod Pod, file *os.File, o interception.NetnsOptions) (*interception.Netns, error) {
	refuse := func(obstacle Obstacle, detail string, cause error) (*interception.Netns, error) {
		_ = file.Close() // it may be closed already, or nil
		return nil, &RefusalError{Pod: pod, Obstacle: obstacle, Detail: detail, cause: cause}
	}
	switch {
	case pod.HostNetwork:
		return refuse(ObstacleHostNetwork, hostNetworkDetail, nil)
	case len(pod.IPs) == 0:
		return refuse(ObstacleIncomplete, noAddressDetail, nil)
	}
	ns, err := interception.NetnsFromFile(file, o)
	obstacle := ObstacleUnreadable
	switch {
	case errors.Is(err, interception.ErrHostNetns):
		obstacle = ObstacleHostNetwork
	case errors.Is(err, interception.ErrNotNetns):
		obstacle = ObstacleNotNetns
	}
	if err != nil {
		return refuse(obstacle, fmt.Sprintf("the file that was handed over is refused: %v", err), err)
	}
	inside, err := namespace.Addresses(ns.File())
	if err != nil {
		return refuse(ObstacleUnreadable, err.Error(), err)
	}
	if !pod.hasOneOf(inside) {
		return refuse(ObstacleAnotherAddress, fmt.Sprintf(
			"the namespace that was handed over, %s, has the addresses %v and none of the pod's %v", ns, inside, pod.IPs), nil)
	}
	return ns, nil
}
