# What can be built depends on what is installed.

# An option that is on unless said otherwise, if all the variables named after its description are true.
function(syncguard_option_if option description)
  set(possible ON)
  foreach(condition IN LISTS ARGN)
    if(NOT ${condition})
      set(possible OFF)
    endif()
  endforeach()
  option(${option} "${description}" ${possible})
endfunction()

# The option SYNCGUARD_NAME and, where it is on, the component NAME (the others are in SYNCGUARD_LEFT_OUT). A backend that needs
# what was not found (the variables named after the Debian package) is left out, and says so; one that was asked for must be
# there.
function(syncguard_backend name server needs debian_package)
  string(TOUPPER "SYNCGUARD_${name}" option)
  syncguard_option_if(${option} "Locks on ${server} (needs ${needs})" ${ARGN})
  if(${option})
    set(SYNCGUARD_COMPONENTS ${SYNCGUARD_COMPONENTS} ${name} PARENT_SCOPE)
  else()
    set(SYNCGUARD_LEFT_OUT ${SYNCGUARD_LEFT_OUT} ${name} PARENT_SCOPE)
    message(NOTICE "SyncGuard: without locks on ${server}; install ${needs} (Debian: ${debian_package}) and set ${option}")
  endif()
endfunction()
