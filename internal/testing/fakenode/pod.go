// SPDX-License-Identifier: Apache-2.0

package fakenode

import (
	"fmt"
	"strings"
)

// The pod shop/cart-0, which tests look for, and the UID of another pod.
const (
	UID       = "1c6b2f1e-9d3c-4f7a-8a51-0f3b9c2d4e5f"
	OtherUID  = "2d7c3a2f-0e4d-4a8b-9b62-1a4c0d3e5f60"
	Container = "855d0d722a28326b818e1500942ebca2855d0d722a28326b818e1500942ebca2"
	Address   = "10.244.1.10/32"
)

// Cgroup returns the cgroup of a container of a pod, with the systemd driver.
func Cgroup(uid, scope string) string {
	return fmt.Sprintf("0::/kubepods.slice/kubepods-pod%s.slice/%s-%s.scope\n", strings.ReplaceAll(uid, "-", "_"), scope, Container)
}
