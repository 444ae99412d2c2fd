// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"github.com/meshcni/meshcni/internal/nodepods"
	"github.com/meshcni/meshcni/repair"
)

// PodOf converts a pod.
func PodOf(o *nodepods.Object) repair.Pod { return podOf(o) }
