// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import "errors"

// The reasons why [Build] and [ServerURL] refuse their input, for errors.Is. No error contains a token, or a part of one.
var (
	// ErrServer means that the API server's address is missing, or has a form that clients would not take.
	ErrServer = errors.New("invalid API server address")
	// ErrCA means that the CA is not a sequence of PEM certificates, or contradicts Insecure.
	ErrCA = errors.New("invalid certificate authority")
	// ErrToken means that the token is empty, or no HTTP header could carry it.
	ErrToken = errors.New("invalid token")
	// ErrName means that the name is empty or not printable.
	ErrName = errors.New("invalid name")
)
